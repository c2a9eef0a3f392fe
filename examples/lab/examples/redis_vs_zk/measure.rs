//! Measures the speed of locks without faults, and the effect of faults on a held lock.

use std::{env, process::Stdio, time::Duration};

use dlock::{
    Locks,
    guarantees::{Guarantees, Scope},
};
use dlock_testlab::Stop;
use futures_util::future::try_join_all;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use crate::{
    args::Args,
    figures::{Cut, FaultFigures, Restart, Speed},
    store::Store,
};

/// Measures both speeds of one store.
pub(crate) async fn speed(url: &str, args: &Args) -> Result<Speed, Stop> {
    let locks = dlock::connect(url).await?;
    // The holder that will be killed is another process, so the locks must reach it.
    locks.require(&Guarantees::WEAKEST.with_scope(Scope::Machine))?;
    let times = uncontended(&locks, args.rounds).await?;
    let clients = try_join_all((0..args.clients).map(|_| dlock::connect(url))).await?;
    Ok(Speed {
        guarantees: locks.guarantees(),
        p50: at(&times, 50),
        p99: at(&times, 99),
        hand_offs: contended(&clients, args.span).await?,
    })
}

/// Returns the times to acquire and release an uncontended lock, sorted.
async fn uncontended(locks: &Locks, rounds: usize) -> Result<Vec<Duration>, Stop> {
    let lock = locks.without_handoff().mutex("uncontended")?;
    let mut times = Vec::new();
    // The first rounds prepare statements and load scripts.
    for round in 0..rounds + 20 {
        let began = Instant::now();
        lock.lock().await?.release().await?;
        if round >= 20 {
            times.push(began.elapsed());
        }
    }
    times.sort_unstable();
    Ok(times)
}

/// Returns the number of hand-offs per second of a lock that all these clients acquire in a loop.
async fn contended(clients: &[Locks], span: Duration) -> Result<f64, Stop> {
    let began = Instant::now();
    let counts = try_join_all(clients.iter().map(|locks| async move {
        let lock = locks.without_handoff().mutex("contended")?;
        let mut count = 0_u32;
        while began.elapsed() < span {
            lock.lock().await?.release().await?;
            count += 1;
        }
        Ok::<_, Stop>(count)
    }))
    .await?;
    Ok(f64::from(counts.iter().sum::<u32>()) / began.elapsed().as_secs_f64())
}

fn at(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}

/// Longer than a server takes to restart, so a holder has no reason to lose its lock.
const LONG: Duration = Duration::from_secs(30);

/// Injects all faults, one after another.
pub(crate) async fn faults(store: &Store, lease: Duration) -> Result<FaultFigures, Stop> {
    let orphan = orphan(store, lease).await?;
    let cut = cut(store, lease).await?;
    let restart = if store.has_server() { Some(restart(store).await?) } else { None };
    Ok(FaultFigures { orphan, restart, cut })
}

/// Kills the holder's process while another client waits.
async fn orphan(store: &Store, lease: Duration) -> Result<Duration, Stop> {
    let url = store.url(lease);
    let mut holder = start_holder(&url).await?;
    let locks = dlock::connect(&url).await?;
    let lock = locks.mutex(HELD)?;
    let kill = async {
        wait_for_a_waiter(&locks, HELD).await?;
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

/// The environment variable with the URL of the lock. It is not an argument, because a URL may
/// contain a password.
const URL: &str = "REDIS_VS_ZK_HOLD_AT";

/// The name of the lock that the process holds.
const HELD: &str = "orphan";

/// Starts a holder process, and waits until it holds the lock.
async fn start_holder(url: &str) -> Result<Child, Stop> {
    let mut child = Command::new(env::current_exe()?)
        .env(URL, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let said = child.stdout.take().ok_or_else(|| Stop::failed("the holder has no voice"))?;
    let mut lines = BufReader::new(said).lines();
    match timeout(Duration::from_secs(30), lines.next_line()).await?? {
        Some(_) => Ok(child),
        None => Err(Stop::failed("the holder ended before it held the lock; it has said why")),
    }
}

/// Holds the lock until the end, if this process is a holder. Returns `false` in other processes.
pub(crate) async fn serve_as_holder() -> Result<bool, Stop> {
    let Ok(url) = env::var(URL) else { return Ok(false) };
    let locks = dlock::connect(&url).await?;
    let _guard = locks.mutex(HELD)?.lock().await?;
    println!("held");
    // Reads until the process is killed or its parent has ended.
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(true)
}
