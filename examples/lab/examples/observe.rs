//! The observability of dlock: events and spans in `tracing`, numbers in `metrics`. One job waits
//! for another, gets the lock, and loses it by a forced release.
//!
//! `cargo run -p dlock-examples-lab --example observe`, on another store with `-- --url URL`

#[path = "../../given/mod.rs"]
mod given;

use std::{error::Error, time::Duration};

use dlock::{ConnectOptions, LockOptions};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tracing_subscriber::filter::LevelFilter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // An application has its own subscribers and exporters, such as those of OpenTelemetry and
    // Prometheus. Each verb has a span of level debug, which costs nothing without a subscriber.
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::DEBUG)
        .with_writer(std::io::stderr)
        .init();
    let recorder = DebuggingRecorder::new();
    let numbers = recorder.snapshotter();
    recorder.install()?;

    // A holder detects the loss of its lock at its next renewal, after a third of the lease.
    let options = LockOptions::new().with_lease(Duration::from_millis(600));
    let noted = ConnectOptions::new().with_note("observe")?;
    let locks = dlock::connect_with(&given::url("memory:")?, noted).await?.with_options(options)?;
    let lock = locks.fair("report")?;
    let first = lock.lock().await?;
    let (waits, ends) = tokio::join!(lock.lock(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.release().await
    });
    ends?;
    let second = waits?;
    for claim in locks.force_release("report").await? {
        println!("it is taken from {:?}", claim.note);
    }
    println!("the second lost it, since {}", second.lost().await);
    drop(second);
    locks.shutdown(Duration::from_secs(5)).await?;

    let mut seen = Vec::new();
    for (key, _unit, _help, value) in numbers.snapshot().into_vec() {
        let (_kind, key) = key.into_parts();
        let labels: Vec<_> =
            key.labels().map(|of| format!("{}={}", of.key(), of.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(now) => now.to_string(),
            DebugValue::Histogram(times) => format!("{} times, {times:?}", times.len()),
        };
        println!("{} {}: {value}", key.name(), labels.join(","));
        seen.push(key.name().to_owned());
    }
    match seen.iter().any(|name| name == "dlock_lost_total") {
        true => Ok(()),
        false => Err("nothing was counted of the lock that was lost".into()),
    }
}
