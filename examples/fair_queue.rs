//! A fair lock is granted in the order of arrival, across all clients: five counters share one
//! queue. Each has a separate connection, as a separate process would have.
//!
//! `cargo run --example fair_queue --features sqlite`, on another store with `-- --url URL`

mod given;

use std::{error::Error, sync::Mutex, time::Duration};

use futures_util::future::{join_all, try_join};
use tempfile::TempDir;
use tokio::time::sleep;

const CLIENTS: usize = 5;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let dir = TempDir::with_prefix("dlock-queue-")?;
    let file = dir.path().join("locks.db");
    let url = given::url(&format!("sqlite:{}?dlock.create_schema=true", file.display()))?;
    let locks = dlock::connect(&url).await?;
    let first = locks.fair("counter")?.lock().await?;
    println!("somebody is being served; {CLIENTS} more come, one after another");

    let served = Mutex::new(Vec::new());
    let clients = join_all((0..CLIENTS).map(|number| {
        let (locks, served, url) = (&locks, &served, &url);
        async move {
            let mine = dlock::connect(url).await?;
            // Arrives when the clients before it are in the queue.
            while locks.inspect("counter").await?.waiters.len() < number {
                sleep(Duration::from_millis(5)).await;
            }
            println!("client {number} comes");
            let guard = mine.fair("counter")?.lock().await?;
            println!("client {number} is served, with token {}", guard.token());
            served.lock().map_err(|_| "a client has panicked")?.push((number, guard.token()));
            guard.release().await?;
            Ok::<_, Failure>(mine.shutdown(Duration::from_secs(5)).await?)
        }
    }));
    let opened = async {
        while locks.inspect("counter").await?.waiters.len() < CLIENTS {
            sleep(Duration::from_millis(5)).await;
        }
        first.release().await?;
        Ok::<_, Failure>(())
    };
    let all = async { clients.await.into_iter().collect::<Result<Vec<()>, Failure>>() };
    try_join(all, opened).await?;

    let served = served.into_inner().map_err(|_| "a client has panicked")?;
    if !served.is_sorted() || !served.iter().map(|(_, token)| token).is_sorted() {
        return Err(format!("served in another order than they came: {served:?}").into());
    }
    println!("served in the order in which they came");
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}
