//! Measures the speed of locks without faults.

use std::time::Duration;

use dlock::{
    Locks,
    guarantees::{Guarantees, Scope},
};
use dlock_testlab::Stop;
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::{args::Args, figures::Speed};

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
