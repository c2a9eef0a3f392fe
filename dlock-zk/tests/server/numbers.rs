//! Sequence numbers at their end. A directory's counter has 32 bits: after 2147483647 it does not
//! change, or continues at the smallest negative number if creations follow each other quickly.
//! Each kind of lock still excludes.

use std::{collections::BTreeSet, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, ClaimState, DynBackend, Error, FencingToken, Guard, Locks, Mode,
    Renewal,
};
use dlock_testlab::{
    Stop, Verdict,
    zookeeper::{Ensemble, JavaProgram, Options, ZooKeeperServer},
};
use futures_util::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use tokio::task::yield_now;
use zookeeper_client::{Acls, CreateMode};

use crate::support::{
    LEASE, ask, attempt, connect, exclusive, free, granted, lazy, queue, raw, run, take, until,
    url, url_of, waits, works, works_fully,
};

const APPEND: &str = include_str!("java/Append.java");

/// The number after the largest one.
pub(crate) const END: i64 = 1 << 31;

/// The node of another program, which keeps the servers from removing the directory.
pub(crate) const THEIRS: &str = "/dlock/a/theirs";

/// A server on which the next node in the directory of `a` gets this number, its clients, and an
/// older claim of the first client, which holds `a` in this mode.
pub(crate) async fn start_at(
    number: i64,
    mode: Mode,
) -> Result<(ZooKeeperServer, Vec<DynBackend>, AcquireRequest), Stop> {
    let options = Options::new().with_container_checks_every(Duration::from_secs(3600));
    let server = ZooKeeperServer::start(&options).await?;
    let client = connect(&url(&server)).await?;
    let held = ask("a", mode);
    take(&client, &held).await?;
    server.stop().await?;
    let log = server.directory().join("data/version-2");
    let args = [&log.display().to_string(), THEIRS, &number.to_string()];
    assert_eq!(JavaProgram::run(APPEND, &args).await?, "appended\n");
    server.restart().await?;
    // The session continues after the client has reconnected.
    until("the client is back", async || Ok(client.inspect(&held.name).await.is_ok())).await?;
    let others = [connect(&url(&server)).await?, connect(&url(&server)).await?];
    let clients = [client].into_iter().chain(others).collect();
    Ok((server, clients, held))
}

/// Returns the numbers of the claims in the directory of `a`, unordered.
pub(crate) async fn numbers(server: &ZooKeeperServer) -> Result<Vec<i64>, Stop> {
    let nodes = server.nodes_under("/dlock/a").await?;
    let claims = nodes.iter().filter(|path| *path != THEIRS);
    let number = |path: &String| path.rsplit_once("lock-")?.1.parse().ok();
    claims.map(|path| number(path).ok_or_else(|| Stop::failed(path))).collect()
}

/// The directory is removed after its last node, and the next one counts from zero, but tokens
/// still grow.
pub(crate) async fn restarts_numbers(
    server: &ZooKeeperServer,
    client: &DynBackend,
    last: FencingToken,
) -> Verdict {
    let request = exclusive("a");
    take(client, &request).await?;
    let worn = numbers(server).await?;
    assert!(worn.iter().all(|number| !(0..=2_000_000_000).contains(number)), "{worn:?}");
    server.delete_recursively(THEIRS).await?;
    free(client, &request).await?;
    // Otherwise the server would remove it much later.
    assert!(!server.nodes_under("/dlock").await?.contains(&"/dlock/a".to_owned()));
    let request = exclusive("a");
    let token = take(client, &request).await?.token;
    assert_eq!(numbers(server).await?, [0]);
    assert!(token > last, "{token:?} is not after {last:?}");
    free(client, &request).await
}

/// Makes many claims of alternating clients wait, and then hold the lock in turn.
async fn in_turn(
    server: &ZooKeeperServer,
    clients: &[DynBackend],
    held: &AcquireRequest,
    first: i64,
) -> Result<FencingToken, Stop> {
    let waiting: Vec<_> = (0..24).map(|_| exclusive("a")).collect();
    let client = |at: usize| &clients[at % clients.len()];
    for (at, request) in waiting.iter().enumerate() {
        queue(client(at), request).await?;
    }
    let numbers = numbers(server).await?;
    assert!(numbers.contains(&first) && numbers.contains(&(first + 7)), "{numbers:?}");
    let state = clients[1].inspect(&held.name).await?;
    let seen: Vec<_> = state.waiters.iter().map(|waiter| waiter.claim).collect();
    let asked: Vec<_> = waiting.iter().map(|request| request.claim).collect();
    assert_eq!((state.holders[0].claim, seen), (held.claim, asked));
    assert_eq!(clients[2].acquire(&attempt("a")).await?, Acquired::Busy);
    let mut last = state.holders[0].token.ok_or("no token")?;
    let mut holder = (&clients[0], held);
    for (at, request) in waiting.iter().enumerate() {
        // No claim behind them is granted.
        if let Some(next) = waiting.get(at + 1) {
            waits(client(at + 1), next).await?;
        }
        let (grant, freed) = tokio::join!(granted(client(at), request), free(holder.0, holder.1));
        freed?;
        let token = grant?.token;
        assert!(token > last, "{at}: {token:?} is not after {last:?}");
        last = token;
        holder = (client(at), request);
    }
    free(holder.0, holder.1).await?;
    Ok(last)
}

#[test]
fn queue_order_and_token_growth_survive_the_end_of_numbers() {
    run(async {
        let first = END - 8;
        let (server, clients, held) = start_at(first, Mode::Exclusive).await?;
        let last = in_turn(&server, &clients, &held, first).await?;
        restarts_numbers(&server, &clients[1], last).await
    })
}

#[test]
fn the_queue_keeps_its_order_where_numbers_are_unreliable() {
    run(async {
        let first = 2_000_000_000 - 7;
        let (server, clients, held) = start_at(first, Mode::Exclusive).await?;
        let last = in_turn(&server, &clients, &held, first).await?;
        restarts_numbers(&server, &clients[2], last).await
    })
}

#[test]
fn readers_and_writers_keep_their_order_at_the_end_of_numbers() {
    run(async {
        let (read, write) = (Mode::Shared, Mode::Exclusive);
        let (server, clients, held) = start_at(END - 7, write).await?;
        let client = |at: usize| &clients[at % clients.len()];
        // The claims of each row are granted together, after the row before.
        let lines: Vec<Vec<_>> = [1, 3, 1, 1, 4, 1, 2, 1]
            .into_iter()
            .map(|width| (0..width).map(move |_| ask("a", if width > 1 { read } else { write })))
            .map(Iterator::collect)
            .collect();
        for (at, request) in lines.iter().flatten().enumerate() {
            queue(client(at), request).await?;
        }
        let mut before = vec![(&clients[0], &held)];
        let mut at = 0;
        let mut last = None;
        for line in &lines {
            let line: Vec<_> =
                line.iter().enumerate().map(|(n, request)| (client(at + n), request)).collect();
            at += line.len();
            for (client, request) in &line {
                waits(client, request).await?;
            }
            for (client, request) in before {
                free(client, request).await?;
            }
            for grant in try_join_all(line.iter().map(|(c, r)| granted(c, r))).await? {
                assert!(Some(grant.token) > last, "{:?} is not after {last:?}", grant.token);
                last = Some(grant.token);
            }
            before = line;
        }
        for (client, request) in before {
            free(client, request).await?;
        }
        restarts_numbers(&server, &clients[0], last.ok_or("no token")?).await
    })
}

/// A claim that releases some of its permits gets a new node, at the same position in the queue.
#[test]
fn a_smaller_permit_claim_keeps_its_position_at_the_last_number() {
    run(async {
        let (server, clients, held) = start_at(END - 1, Mode::permits(1, 5)?).await?;
        let [a, b, c] = &clients[..] else { panic!("three clients") };
        let wants = |n| Mode::permits(n, 5).map(|mode| ask("a", mode));
        let (first, second, third, last) = (wants(4)?, wants(3)?, wants(2)?, wants(1)?);
        take(b, &first).await?;
        queue(c, &second).await?;
        queue(a, &third).await?;
        queue(b, &last).await?;
        let fewer = Renewal::new(first.as_claim(), Mode::permits(1, 5)?, LEASE);
        b.renew(&[fewer]).await?;
        granted(c, &second).await?;
        waits(a, &third).await?;
        waits(b, &last).await?;
        let order = |state: &[ClaimState]| state.iter().map(|s| s.claim).collect::<Vec<_>>();
        let state = c.inspect(&held.name).await?;
        assert_eq!(order(&state.holders), [held.claim, first.claim, second.claim]);
        assert_eq!(order(&state.waiters), [third.claim, last.claim]);
        free(a, &held).await?;
        waits(a, &third).await?;
        free(b, &first).await?;
        granted(a, &third).await?;
        waits(b, &last).await?;
        free(a, &third).await?;
        let token = granted(b, &last).await?.token;
        free(c, &second).await?;
        free(b, &last).await?;
        restarts_numbers(&server, b, token).await
    })
}

/// The counter of the root has 32 bits and outlives all sessions: after its last number, every
/// sequential node would get the same number.
#[test]
fn a_root_whose_counter_has_run_over_serves_new_clients() {
    run(async {
        let ensemble = Ensemble::start(&lazy()).await?;
        works(&connect(&url_of(&ensemble)).await?, "a").await?;
        for node in ensemble.nodes() {
            node.stop().await?;
        }
        let log = |node: usize| ensemble.nodes()[node].directory().join("data/version-2");
        let first = log(0).display().to_string();
        let args = [&first, "/dlock/theirs", &i32::MAX.to_string()];
        assert_eq!(JavaProgram::run(APPEND, &args).await?, "appended\n");
        // The other servers must get the data of the first one. It leads one of them before the
        // last one starts, since two empty servers would be a majority without it.
        for node in 1..ensemble.nodes().len() {
            std::fs::remove_dir_all(log(node))?;
        }
        let [first, second, third] = ensemble.nodes() else {
            return Err(Stop::failed("an ensemble has three nodes"));
        };
        tokio::try_join!(first.restart(), second.restart())?;
        third.restart().await?;
        ensemble.until_well().await?;
        // All clients at once: each has a node there.
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(&url_of(&ensemble)).await?);
        }
        let raw = raw(&ensemble.nodes()[0]).await?;
        let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, number) = raw.create("/dlock/worn-", b"", &node).await?;
        assert_eq!(number.to_string(), i32::MAX.to_string());
        for (client, other) in clients.iter().zip(&clients[1..]) {
            works_fully(client, other, "a").await?;
            client.examine().await?;
        }
        Ok(())
    })
}

/// The number of tasks of each client, and of acquires of each task.
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

/// The work to acquire a share of a lock, of the given weight.
type Taking = BoxFuture<'static, Result<(u32, Guard), Error>>;

/// Acquires and releases repeatedly, with many tasks of each client. `take` acquires the lock for
/// each turn, and returns its weight.
async fn storm(
    clients: &[DynBackend],
    of: u32,
    take: impl Fn(Locks, usize) -> Taking + Send + Sync,
) -> Result<Vec<FencingToken>, Stop> {
    let seen = Mutex::new(Seen::default());
    let tasks = (0..TASKS * clients.len()).map(async |task| {
        // No hand-off within a client: each turn has its own node.
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

/// With one request each, so that the numbers become negative.
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
