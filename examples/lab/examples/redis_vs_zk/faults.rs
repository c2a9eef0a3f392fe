//! Measures the effect of faults on a held lock.

use std::time::Duration;

use dlock::Locks;
use dlock_testlab::Stop;
use tokio::time::{Instant, sleep};

use crate::{
    figures::{Cut, FaultFigures, Restart},
    holder,
    store::Store,
};

/// Longer than a server takes to restart, so a holder has no reason to lose its lock.
const LONG: Duration = Duration::from_secs(30);

/// Injects all faults, one after another.
pub(crate) async fn measure(store: &Store, lease: Duration) -> Result<FaultFigures, Stop> {
    let orphan = orphan(store, lease).await?;
    let cut = cut(store, lease).await?;
    let restart = if store.has_server() { Some(restart(store).await?) } else { None };
    Ok(FaultFigures { orphan, restart, cut })
}

/// Kills the holder's process while another client waits.
async fn orphan(store: &Store, lease: Duration) -> Result<Duration, Stop> {
    let url = store.url(lease);
    let mut holder = holder::start(&url).await?;
    let locks = dlock::connect(&url).await?;
    let lock = locks.mutex(holder::NAME)?;
    let kill = async {
        wait_for_a_waiter(&locks, holder::NAME).await?;
        let killed = Instant::now();
        holder.kill().await?;
        Ok(killed)
    };
    let granted = async {
        let guard = lock.lock().await?;
        let at = Instant::now();
        guard.release().await?;
        Ok::<_, Stop>(at)
    };
    let (killed, granted) = tokio::try_join!(kill, granted)?;
    Ok(granted.saturating_duration_since(killed))
}

/// Cuts the network between the holder and the server without closing a connection.
async fn cut(store: &Store, lease: Duration) -> Result<Option<Cut>, Stop> {
    let Some((proxy, far)) = store.through_proxy(lease).await? else { return Ok(None) };
    let (holder, other) = (dlock::connect(&far).await?, dlock::connect(&store.url(lease)).await?);
    let guard = holder.mutex("cut")?.lock().await?;
    let lock = other.mutex("cut")?;
    let told = async {
        wait_for_a_waiter(&other, "cut").await?;
        proxy.half_open();
        let cut = Instant::now();
        guard.lost().await;
        Ok::<_, Stop>((cut, Instant::now()))
    };
    let passed = async {
        let guard = lock.lock().await?;
        let at = Instant::now();
        guard.release().await?;
        Ok(at)
    };
    let ((cut, told), passed) = tokio::try_join!(told, passed)?;
    proxy.pass().await?;
    Ok(Some(Cut {
        told: told.saturating_duration_since(cut),
        passed: passed.saturating_duration_since(cut),
    }))
}

/// Kills and restarts the server while the lock is held and another client tries to acquire it.
async fn restart(store: &Store) -> Result<Restart, Stop> {
    let url = store.url(LONG);
    let (holder, other) = (dlock::connect(&url).await?, dlock::connect(&url).await?);
    let guard = holder.mutex("restart")?.lock().await?;
    let lock = other.mutex("restart")?;
    if lock.try_lock().await?.is_some() {
        return Err(Stop::failed("a held lock was given to a second client"));
    }
    store.kill();
    let killed = Instant::now();
    let answer = async {
        loop {
            match lock.try_lock().await {
                Ok(second) => return Ok((killed.elapsed(), second)),
                Err(error) if error.is_transient() => sleep(Duration::from_millis(10)).await,
                Err(error) => return Err(error.into()),
            }
        }
    };
    let up = async { store.restart().await.map(|()| killed.elapsed()) };
    let (up, (away, second)) = tokio::try_join!(up, answer)?;
    Ok(Restart {
        away,
        up,
        first: guard.token(),
        second: second.map(|second| second.token()),
        believed: guard.check().is_ok(),
    })
}

async fn wait_for_a_waiter(locks: &Locks, name: &str) -> Result<(), Stop> {
    while locks.inspect(name).await?.waiters.is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
