//! A network on which an answer takes more than half a lease, and a master that does not answer.

use dlock_core::{Acquired, ErrorKind, Guard, GuardState, LockOptions, Locks, Mode, Renew};
use dlock_testlab::{
    Flow, Proxy, Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::{Duration, sleep, timeout};

use crate::support::{
    SOON, ask, attempt, brief, connect, exclusive, free, millis, renew, run, start, take,
};

const LEASE: Duration = millis(450);
/// The delay in each direction. A round trip takes more than half a lease, and less than a whole
/// one.
const DELAY: Duration = millis(150);

async fn slow(
    server: &RedisServer,
    notified: bool,
) -> Result<(Proxy, String), dlock_testkit::Stop> {
    let user = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all"];
    server.command(&user).await?.ok()?;
    if !notified {
        server.command(&["ACL", "SETUSER", "joe", "-subscribe"]).await?.ok()?;
    }
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://joe:p@{}", proxy.address());
    Ok((proxy, url))
}

fn delay(proxy: &Proxy) {
    proxy.requests(Flow::Delay(DELAY));
    proxy.replies(Flow::Delay(DELAY));
}

/// Waits until the lock has no claims.
async fn becomes_free(server: &RedisServer) -> Verdict {
    let other = connect(&server.url()).await?;
    crate::support::until("the lock is free", async || {
        Ok(other.inspect(&attempt("a").name).await?.is_free())
    })
    .await
}

/// A waiter on a slow network learns of its grant or of the loss of its claim. The server does not
/// keep it as a holder that does not know of its grant.
async fn a_slow_waiter_knows(notified: bool) -> Verdict {
    let server = start().await?;
    let other = connect(&server.url()).await?;
    let (proxy, url) = slow(&server, notified).await?;
    let client = connect(&url).await?;
    let (held, waiting) = (exclusive("a"), brief("a", LEASE));
    // The server must have the scripts in its cache, or the first request would take twice as long.
    let reader = ask("a", Mode::Shared);
    take(&other, &reader).await?;
    renew(&other, std::slice::from_ref(&reader)).await?;
    free(&other, &reader).await?;
    take(&other, &held).await?;
    delay(&proxy);
    let acquired = client.acquire(&waiting).await?;
    assert_eq!(acquired, Acquired::Queued);
    let waits = async { timeout(SOON, client.granted(&waiting)).await };
    let frees = async {
        sleep(millis(600)).await;
        free(&other, &held).await
    };
    let (outcome, freed) = tokio::join!(waits, frees);
    freed?;
    // Either outcome is fine: the waiter knows it.
    if let Err(error) = outcome? {
        assert_eq!(error.kind(), ErrorKind::NotHeld, "{error:?}");
    }
    becomes_free(&server).await
}

#[test]
fn a_notified_waiter_on_a_slow_network_gets_the_lock() {
    run(a_slow_waiter_knows(true));
}

#[test]
fn a_polling_waiter_on_a_slow_network_gets_the_lock() {
    run(a_slow_waiter_knows(false));
}

/// The same with guards, on a network where an answer takes longer than a lease, and on one where
/// it does not.
#[test]
fn a_lock_on_a_slow_network_is_released() {
    run(async {
        let server = start().await?;
        let other = connect(&server.url()).await?;
        for lease in [millis(250), LEASE] {
            let (proxy, url) = slow(&server, true).await?;
            let options = LockOptions::new().with_lease(lease).with_renew(Renew::Auto);
            let locks = Locks::new(connect(&url).await?)?.with_options(options)?;
            let held = exclusive("a");
            take(&other, &held).await?;
            delay(&proxy);
            let lock = locks.mutex("a")?;
            let waits = async { timeout(SOON, lock.lock()).await };
            let frees = async {
                sleep(millis(600)).await;
                free(&other, &held).await
            };
            let (outcome, freed) = tokio::join!(waits, frees);
            freed?;
            match outcome? {
                Ok(guard) => drop(guard),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
            }
            becomes_free(&server).await?;
        }
        Ok(())
    });
}

#[test]
fn one_silent_master_of_five_loses_no_short_lease() {
    run(async {
        let masters = RedisMasters::start(5, &Options::new()).await?;
        // The response timeout is longer than the leases.
        let url = format!("{}?dlock.restart_guard=0s&dlock.response_timeout=20s", masters.url());
        let client = connect(&url).await?;
        let hold = async |name: &str, lease: Duration| -> Result<Guard, Stop> {
            let options = LockOptions::new().with_lease(lease);
            let locks = Locks::new(client.clone())?.with_options(options)?;
            Ok(timeout(SOON, locks.mutex(name)?.lock()).await??)
        };
        let leases = [millis(3000), millis(4500), millis(9000)];
        let mut guards = Vec::new();
        for (lease, name) in leases.into_iter().zip(["a", "b", "c"]) {
            guards.push(hold(name, lease).await?);
        }
        let silent = &masters.servers()[3];
        silent.pause()?;
        for (lease, name) in leases.into_iter().zip(["d", "e", "f"]) {
            guards.push(hold(name, lease).await?);
        }
        for _ in 0..40 {
            sleep(millis(300)).await;
            for guard in &guards {
                assert_ne!(guard.state(), GuardState::Lost, "{}", guard.name());
            }
        }
        silent.resume()?;
        for guard in guards {
            timeout(SOON, guard.release()).await??;
        }
        Ok(())
    });
}
