//! Contention at the end of the sequence numbers: each kind of lock still excludes.

use std::collections::BTreeSet;

use dlock_core::{DynBackend, Error, FencingToken, Guard, Locks, Mode};
use dlock_testkit::{Stop, Verdict};
use futures_util::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use tokio::task::yield_now;

use crate::{
    numbers::{END, numbers, restarts_numbers, start_at},
    support::{free, run},
};

/// The number of tasks of each client, and of acquisitions by each task.
const TASKS: usize = 8;
const ROUNDS: usize = 5;

/// The weights of the present holders, and the tokens in the order of the grants.
#[derive(Default)]
struct Seen {
    inside: Vec<u32>,
    tokens: Vec<FencingToken>,
}

impl Seen {
    fn enters(&mut self, weight: u32, of: u32, guard: &Guard) {
        self.inside.push(weight);
        assert!(self.inside.iter().sum::<u32>() <= of, "{:?} of {of} are in", self.inside);
        self.tokens.push(guard.token());
    }

    fn leaves(&mut self, weight: u32) {
        let at = self.inside.iter().position(|inside| *inside == weight);
        self.inside.remove(at.expect("it is in"));
    }
}

/// Under way to a part of a lock, as large as is said.
type Taking = BoxFuture<'static, Result<(u32, Guard), Error>>;

/// Takes and gives back, over and over, by many tasks of each client. `take` says for each turn how
/// much of the lock it takes.
async fn storm(
    clients: &[DynBackend],
    of: u32,
    take: impl Fn(Locks, usize) -> Taking + Send + Sync,
) -> Result<Vec<FencingToken>, Stop> {
    let seen = Mutex::new(Seen::default());
    let tasks = (0..TASKS * clients.len()).map(async |task| {
        // No hand-over within a client: each turn has a node of its own.
        let locks = Locks::new(clients[task % clients.len()].clone())?.without_handoff();
        for round in 0..ROUNDS {
            let (weight, guard) = take(locks.clone(), task + round).await?;
            seen.lock().enters(weight, of, &guard);
            yield_now().await;
            guard.check()?;
            seen.lock().leaves(weight);
            guard.release().await?;
        }
        Ok::<_, Stop>(())
    });
    try_join_all(tasks).await?;
    Ok(seen.into_inner().tokens)
}

fn grow(tokens: &[FencingToken]) {
    let sorted = tokens.is_sorted_by(|a, b| a < b);
    assert!(sorted, "not in order: {tokens:?}");
}

#[test]
fn a_contended_mutex_stays_correct_at_the_end_of_numbers() {
    run(async {
        let (server, clients, held) = start_at(END - 20, Mode::Exclusive).await?;
        free(&clients[0], &held).await?;
        let tokens = storm(&clients, 1, |locks, _| {
            Box::pin(async move { Ok((1, locks.mutex("a")?.lock().await?)) })
        })
        .await?;
        grow(&tokens);
        restarts_numbers(&server, &clients[1], *tokens.last().ok_or("no token")?).await
    })
}

#[test]
fn contended_writers_exclude_at_the_end_of_numbers() {
    run(async {
        let (server, clients, held) = start_at(END - 20, Mode::Exclusive).await?;
        free(&clients[0], &held).await?;
        let all = 1000;
        let tokens = storm(&clients, all, |locks, turn| {
            Box::pin(async move {
                let lock = locks.rw("a")?;
                Ok(match turn % 4 {
                    0 => (all, lock.write().lock().await?),
                    _ => (1, lock.read().lock().await?),
                })
            })
        })
        .await?;
        let different: BTreeSet<_> = tokens.iter().copied().collect();
        assert_eq!(different.len(), tokens.len(), "{tokens:?}");
        restarts_numbers(&server, &clients[1], *different.last().ok_or("no token")?).await
    })
}

#[test]
fn contended_permits_stay_bounded_at_the_end_of_numbers() {
    run(async {
        let (server, clients, held) = start_at(END - 20, Mode::permits(1, 5)?).await?;
        free(&clients[0], &held).await?;
        let tokens = storm(&clients, 5, |locks, turn| {
            Box::pin(async move {
                let n = u32::try_from(turn % 3).unwrap_or_default() + 1;
                Ok((n, locks.semaphore("a", 5)?.acquire_many(n).await?))
            })
        })
        .await?;
        let different: BTreeSet<_> = tokens.iter().copied().collect();
        assert_eq!(different.len(), tokens.len(), "{tokens:?}");
        restarts_numbers(&server, &clients[1], *different.last().ok_or("no token")?).await
    })
}

/// By one request each, so that numbers go on below zero.
#[test]
fn multi_locks_are_granted_in_one_order_at_the_end_of_numbers() {
    run(async {
        let (server, clients, held) = start_at(END - 20, Mode::Exclusive).await?;
        let locks: Vec<_> = clients
            .iter()
            .map(|client| Locks::new(client.clone()).map(|locks| locks.without_handoff()))
            .collect::<Result<_, _>>()?;
        let seen = Mutex::new(Seen::default());
        let tasks = (0..TASKS * clients.len()).map(async |task| {
            let names = if task % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            let guard = locks[task % locks.len()].multi(names)?.lock().await?;
            seen.lock().enters(1, 1, &guard);
            yield_now().await;
            seen.lock().leaves(1);
            guard.release().await?;
            Ok::<_, Stop>(())
        });
        let release = async {
            loop {
                let numbers = numbers(&server).await?;
                if numbers.len() == TASKS * clients.len() + 1 {
                    assert!(numbers.iter().any(|n| *n < 0 || *n == END - 1), "{numbers:?}");
                    return free(&clients[0], &held).await;
                }
                yield_now().await;
            }
        };
        let (done, released): (_, Verdict) = tokio::join!(try_join_all(tasks), release);
        released?;
        done?;
        let last = seen.lock().tokens.iter().copied().max();
        restarts_numbers(&server, &clients[1], last.ok_or("no token")?).await
    })
}
