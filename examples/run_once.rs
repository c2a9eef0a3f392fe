//! A job that every server of a fleet starts at the same hour, and that only one of them runs: the
//! others find the lock held and continue. The store keeps the lock held for a while after the job,
//! even if its server ends, so that a server whose clock is late does not run the job again.
//!
//! `cargo run --example run_once`, on another store with `-- --url URL`

mod given;

use std::{error::Error, time::Duration};

use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep, sleep_until};

/// More than the largest difference between the clocks of the fleet.
const AT_LEAST: Duration = Duration::from_millis(600);
const PERIOD: Duration = Duration::from_millis(1200);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locks = dlock::connect(&given::url("memory:")?).await?;
    let noon = Instant::now();
    for day in 0..2_u32 {
        let servers = (0..4_u32).map(|server| {
            let locks = &locks;
            async move {
                // A server with a late clock reaches noon later.
                sleep_until(noon + PERIOD * day + Duration::from_millis(50) * server).await;
                let job = locks.job("nightly-report")?.with_at_least(AT_LEAST)?;
                Ok::<_, Failure>(job.run(|_token| report(server)).await?.done())
            }
        });
        let ran = try_join_all(servers).await?.into_iter().flatten().count();
        println!("day {day}: 4 servers, {ran} report(s)");
        if ran != 1 {
            return Err("the report was to be made once".into());
        }
    }
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

async fn report(server: u32) {
    println!("server {server} makes the report");
    sleep(Duration::from_millis(10)).await;
}
