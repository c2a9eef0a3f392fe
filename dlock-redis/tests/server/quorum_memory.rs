//! The memory of a client is bounded while masters of a quorum are unreachable.

use std::time::Duration;

use dlock_core::{Acquired, DynBackend, LockOptions, Locks, Released};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisMasters},
};
use futures_util::FutureExt;
use tokio::{runtime::Handle, time::sleep};

use crate::support::{attempt, connect, exclusive, free, run, take, until};

async fn masters() -> Result<(RedisMasters, String), Stop> {
    let masters = RedisMasters::start(3, &Options::new()).await?;
    let url = format!("{}?dlock.restart_guard=0s", masters.url());
    Ok((masters, url))
}

/// Returns whether the debug output of a client shows these counts of known claims and deferred
/// releases.
fn knows(client: &DynBackend, what: &str) -> bool {
    format!("{client:?}").contains(what)
}

/// A busy try is answered although a master is unreachable.
async fn until_unreachable(
    client: &DynBackend,
    unreachable: &RedisMasters,
    which: &[usize],
) -> Result<(), Stop> {
    for at in which {
        unreachable.servers()[*at].kill();
    }
    until("it is seen that they are away", async || {
        let findings = client.examine().await;
        Ok(findings
            .is_ok_and(|all| all.iter().filter(|f| f.about == "server").count() >= which.len()))
    })
    .await
}

#[test]
fn a_busy_try_leaves_nothing_in_the_client() {
    run(async {
        let (masters, url) = masters().await?;
        let (one, two) = (connect(&url).await?, connect(&url).await?);
        let held = exclusive("a");
        take(&one, &held).await?;
        for unreachable in [false, true] {
            if unreachable {
                until_unreachable(&two, &masters, &[2]).await?;
            }
            for _ in 0..300 {
                assert_eq!(two.acquire(&attempt("a")).await?, Acquired::Busy);
            }
            assert!(knows(&two, "claims: 0"), "{two:?}");
        }
        // The same for a claim that waited, and for one that held the lock.
        let waits = exclusive("a");
        assert_eq!(two.acquire(&waits).await?, Acquired::Queued);
        assert!(knows(&two, "claims: 1"), "{two:?}");
        assert_eq!(two.release(&waits.as_claim()).await?, Released::AlreadyLost);
        free(&one, &held).await?;
        for client in [&one, &two] {
            assert!(knows(client, "claims: 0"), "{client:?}");
        }
        Ok(())
    });
}

/// Without a majority an attempt may fail before any master was sent a request. Its caller may leave
/// at any time.
#[test]
fn a_claim_that_was_dropped_without_a_majority_is_forgotten() {
    run(async {
        let (masters, url) = masters().await?;
        let client = connect(&url).await?;
        let locks = Locks::new(client.clone())?;
        // The attempt asks the masters in this order, and ends after the second.
        until_unreachable(&client, &masters, &[0, 1]).await?;
        for _ in 0..20 {
            let waits = locks.mutex("a")?;
            assert!(waits.lock().now_or_never().is_none(), "granted without a majority");
        }
        for master in &masters.servers()[..2] {
            master.restart().await?;
        }
        until("no claim is known", async || Ok(knows(&client, "claims: 0"))).await
    });
}

const GUARDS: usize = 200;

#[test]
fn a_guard_dropped_without_a_majority_is_remembered_once() {
    run(async {
        let (masters, url) = masters().await?;
        let client = connect(&url).await?;
        let options = LockOptions::new().with_lease(Duration::from_secs(180));
        let locks = Locks::new(client.clone())?.with_options(options)?;
        let mut guards = Vec::new();
        for number in 0..GUARDS {
            guards.push(locks.mutex(format!("lock {number}"))?.lock().await?);
        }
        until_unreachable(&client, &masters, &[1, 2]).await?;
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        drop(guards);
        let deferred = format!("deferred: [0, {GUARDS}, {GUARDS}]");
        until("each guard is deferred at each master", async || Ok(knows(&client, &deferred)))
            .await?;
        // Each release is retried several times meanwhile.
        for _ in 0..80 {
            sleep(Duration::from_millis(100)).await;
            assert!(knows(&client, &deferred), "{client:?}");
            // The core has one task for each guard, which may have started another one.
            assert!(tasks() <= before + 2 * GUARDS + 9, "{} after {before}", tasks());
        }
        for master in &masters.servers()[1..] {
            master.restart().await?;
        }
        until("nothing is deferred", async || Ok(knows(&client, "claims: 0, deferred: [0, 0, 0]")))
            .await
    });
}

#[test]
fn an_unsettled_release_at_a_master_ends_with_the_lease() {
    run(async {
        let (masters, url) = masters().await?;
        let client = connect(&url).await?;
        let mut held = exclusive("a");
        held.lease = Duration::from_secs(25);
        take(&client, &held).await?;
        let mut longer = exclusive("b");
        longer.lease = Duration::from_secs(180);
        take(&client, &longer).await?;
        until_unreachable(&client, &masters, &[2]).await?;
        // The claim is released at the other masters.
        client.release(&held.as_claim()).await?;
        free(&client, &longer).await?;
        until("both are deferred", async || Ok(knows(&client, "deferred: [0, 0, 2]"))).await?;
        until("one lease has ended", async || Ok(knows(&client, "deferred: [0, 0, 1]"))).await?;
        masters.servers()[2].restart().await?;
        until("nothing is deferred", async || Ok(knows(&client, "deferred: [0, 0, 0]"))).await
    });
}
