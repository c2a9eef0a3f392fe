//! Curator's `InterProcessMutex` and dlock exclude each other, and wait in one queue.

use std::{path::Path, time::Duration};

use dlock_core::{DynBackend, Locks, Mode, Renewal};
use dlock_testlab::{Stop, Verdict, zookeeper::JavaProgram};
use futures_util::future::try_join_all;
use tokio::{task::yield_now, time::timeout};

use crate::{
    shared::{ServerRoot, start},
    support::{
        LEASE, ask, attempt, connect, exclusive, free, granted, name, queue, run, server, take,
        until, url, waits,
    },
};

const MUTEX: &str = include_str!("java/Mutex.java");

/// A Java program with a mutex of the lock `a`, in a session of a minute.
struct Java(JavaProgram);

impl Java {
    async fn start(place: &ServerRoot) -> Result<Self, Stop> {
        Self::with_session(place, Duration::from_secs(60)).await
    }

    async fn with_session(place: &ServerRoot, session: Duration) -> Result<Self, Stop> {
        let session = session.as_millis().to_string();
        let mut java = Self(
            JavaProgram::start(MUTEX, &[&place.server.address(), &place.path("a"), &session])
                .await?,
        );
        java.says("ready").await?;
        Ok(java)
    }

    async fn says(&mut self, expected: &str) -> Verdict {
        match self.0.line().await? {
            line if line == expected => Ok(()),
            line => Err(Stop::failed(format!("{line:?} is not {expected:?}"))),
        }
    }

    async fn takes(&mut self) -> Verdict {
        self.0.say("acquire").await?;
        self.says("acquired").await
    }

    /// Joins the queue behind this number of claims.
    async fn queues(&mut self, place: &ServerRoot, behind: usize) -> Verdict {
        self.0.say("acquire").await?;
        until("the program waits", async || {
            Ok(place.server.nodes_under(&place.path("a")).await?.len() == behind + 1)
        })
        .await
    }

    /// Fails when it is granted the lock within a while.
    async fn waits(&mut self) -> Verdict {
        match timeout(Duration::from_millis(400), self.0.line()).await {
            Err(_) => Ok(()),
            Ok(line) => Err(Stop::failed(format!("it says {line:?}"))),
        }
    }

    async fn frees(&mut self) -> Verdict {
        self.0.say("release").await?;
        self.says("released").await
    }
}

#[test]
fn a_java_holder_keeps_every_kind_out_until_it_releases() {
    run(async {
        let (place, client) = start().await?;
        let mut java = Java::start(&place).await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            java.takes().await?;
            let waiting = ask("a", mode);
            assert_eq!(client.acquire(&attempt("a")).await?, dlock_core::Acquired::Busy);
            queue(&client, &waiting).await?;
            waits(&client, &waiting).await?;
            java.frees().await?;
            granted(&client, &waiting).await?;
            free(&client, &waiting).await?;
        }
        // A name can't be a mutex and a semaphore at once, in dlock or in Curator.
        java.takes().await?;
        let error = client.acquire(&ask("a", Mode::permits(1, 3)?)).await;
        let kind = error.err().ok_or("granted")?.kind();
        assert_eq!(kind, dlock_core::ErrorKind::Config(dlock_core::ConfigIssue::Capacity));
        java.frees().await
    })
}

/// Curator sorts all children by the text after `lock-`.
#[test]
fn every_kind_of_holder_keeps_a_java_waiter_out_until_release() {
    run(async {
        let (place, client) = start().await?;
        let mut java = Java::start(&place).await?;
        let permits = Mode::permits(2, 3)?;
        for (mode, weaker) in [
            (Mode::Exclusive, None),
            (Mode::Exclusive, Some(Mode::Shared)),
            (Mode::Shared, None),
            (permits, None),
            (permits, Some(Mode::permits(1, 3)?)),
        ] {
            let held = ask("a", mode);
            take(&client, &held).await?;
            java.queues(&place, 1).await?;
            java.waits().await?;
            if let Some(weaker) = weaker {
                let renewal = Renewal::new(held.as_claim(), weaker, LEASE);
                client.renew(&[renewal]).await?;
                java.waits().await?;
            }
            free(&client, &held).await?;
            java.says("acquired").await?;
            java.frees().await?;
        }
        Ok(())
    })
}

#[test]
fn all_wait_in_one_queue_first_come_first_served() {
    run(async {
        let (place, client) = start().await?;
        let (mut first, mut second) = (Java::start(&place).await?, Java::start(&place).await?);
        let (held, middle, last) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        first.queues(&place, 1).await?;
        queue(&client, &middle).await?;
        second.queues(&place, 3).await?;
        queue(&client, &last).await?;

        free(&client, &held).await?;
        first.says("acquired").await?;
        waits(&client, &middle).await?;
        first.frees().await?;
        granted(&client, &middle).await?;
        second.waits().await?;
        waits(&client, &last).await?;
        free(&client, &middle).await?;
        second.says("acquired").await?;
        waits(&client, &last).await?;
        second.frees().await?;
        granted(&client, &last).await?;
        free(&client, &last).await
    })
}

#[test]
fn readers_do_not_pass_a_java_waiter() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let mut java = Java::start(&place).await?;
        let (held, with_it, late) =
            (ask("a", Mode::Shared), ask("a", Mode::Shared), ask("a", Mode::Shared));
        take(&client, &held).await?;
        take(&other, &with_it).await?;
        java.queues(&place, 2).await?;
        queue(&other, &late).await?;
        waits(&other, &late).await?;
        free(&client, &held).await?;
        java.waits().await?;
        free(&other, &with_it).await?;
        java.says("acquired").await?;
        waits(&other, &late).await?;
        java.frees().await?;
        granted(&other, &late).await?;
        free(&other, &late).await
    })
}

#[test]
fn inspect_shows_a_java_holder_and_waiter() {
    run(async {
        let (place, client) = start().await?;
        let (mut first, mut second) = (Java::start(&place).await?, Java::start(&place).await?);
        first.takes().await?;
        second.queues(&place, 1).await?;
        let state = client.inspect(&name("a")).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, 1), "{state:?}");
        let (holder, waiter) = (&state.holders[0], &state.waiters[0]);
        assert_eq!((holder.mode, waiter.mode), (Mode::Exclusive, Mode::Exclusive));
        assert!(holder.token.is_some() && holder.token == state.last_token, "{state:?}");
        assert!(waiter.token.is_none() && waiter.claim != holder.claim, "{state:?}");
        // A holder's node can be removed by hand; the waiter is granted.
        let claim = dlock_core::Claim::new(name("a"), holder.claim);
        assert_eq!(client.release(&claim).await?, dlock_core::Released::Released);
        second.says("acquired").await?;
        second.frees().await
    })
}

#[test]
fn a_waiter_is_granted_after_a_java_process_died() {
    run(async {
        let (place, client) = start().await?;
        let session = Duration::from_secs(4);
        let mut holder = Java::with_session(&place, session).await?;
        let mut waiter = Java::with_session(&place, session).await?;
        holder.takes().await?;
        waiter.queues(&place, 1).await?;
        let waiting = exclusive("a");
        queue(&client, &waiting).await?;
        holder.0.kill();
        waiter.0.kill();
        waits(&client, &waiting).await?;
        granted(&client, &waiting).await?;
        free(&client, &waiting).await?;
        works_alone(&client).await
    })
}

async fn works_alone(client: &DynBackend) -> Verdict {
    crate::support::works(client, "a").await
}

const COUNT: &str = include_str!("java/Count.java");

/// The number of threads of the Java process, of tasks of each client, and of increments of each
/// task.
const THREADS: usize = 4;
const TASKS: usize = 3;
const TIMES: usize = 20;

/// Reads and writes with a pause in between. Only an exclusive holder gets the right result.
async fn count(file: &Path) -> Verdict {
    let value: u64 = std::fs::read_to_string(file)?.parse()?;
    yield_now().await;
    std::fs::write(file, (value + 1).to_string())?;
    Ok(())
}

#[test]
fn java_threads_and_two_clients_count_exactly() {
    run(async {
        let server = server().await?;
        let file = server.directory().join("counter");
        std::fs::write(&file, "0")?;
        let path = file.display().to_string();
        let (threads, times) = (THREADS.to_string(), TIMES.to_string());
        let args = [&server.address(), "/dlock/a", &path, &threads, &times];
        let mut java = JavaProgram::start(COUNT, &args).await?;
        assert_eq!(java.line().await?, "ready");
        let clients = [connect(&url(&server)).await?, connect(&url(&server)).await?];
        java.say("go").await?;
        let counting = (0..TASKS * clients.len()).map(async |task| {
            let locks = Locks::new(clients[task % clients.len()].clone())?;
            for _ in 0..TIMES {
                let guard = locks.mutex("a")?.lock().await?;
                count(&file).await?;
                guard.release().await?;
            }
            Ok::<_, Stop>(())
        });
        let (ended, counted) = tokio::join!(java.finish(), try_join_all(counting));
        counted?;
        assert_eq!(ended?, "counted\n");
        let expected = (THREADS + TASKS * clients.len()) * TIMES;
        assert_eq!(std::fs::read_to_string(&file)?, expected.to_string());
        Ok(())
    })
}
