//! Names that are used only once.
//!
//! ```text
//! once NAME TASKS FROM UNTIL -> ok CYCLES...  each task uses one new name after the other
//! ```

use std::time::Duration;

use tokio::task::{JoinSet, coop::consume_budget};

use crate::{Failure, clock};

/// The time for which a process continues after a run, so that its last releases do not disturb the
/// next one.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// A subject with the cheapest way to use a new name.
pub(super) trait Once: Clone + Send + Sync + 'static {
    /// Acquires and releases the lock of this name.
    fn once(&self, name: &str) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Runs the command of a line, if it is one of this file's.
pub(super) async fn more(subject: &impl Once, words: &[&str]) -> Result<String, Failure> {
    match *words {
        ["once", name, tasks, from, until] => {
            let counts = until_over(subject, name, tasks.parse()?, from.parse()?, until.parse()?);
            Ok(counts.await?.iter().map(|count| format!("{count} ")).collect())
        }
        _ => Err(format!("it does not know: {}", words.join(" ")).into()),
    }
}

async fn until_over(
    subject: &impl Once,
    name: &str,
    tasks: u32,
    from: u64,
    until: u64,
) -> Result<Vec<u64>, Failure> {
    let mut all: JoinSet<Result<u64, Failure>> = JoinSet::new();
    for task in 0..tasks {
        let (subject, name) = (subject.clone(), name.to_owned());
        all.spawn(async move {
            clock::sleep_until(from).await;
            let mut count = 0;
            while clock::now() < until {
                // Yields as other code of an application does: a free lock never makes the task
                // wait.
                consume_budget().await;
                subject.once(&format!("{name}/{task}/{count}")).await?;
                count += u64::from(clock::now() < until);
            }
            Ok(count)
        });
    }
    let mut counts = Vec::new();
    while let Some(done) = all.join_next().await {
        counts.push(done??);
    }
    tokio::time::sleep(STRAGGLERS).await;
    Ok(counts)
}

/// Uses `count` names once each, with a number of concurrent tasks.
pub(super) async fn all(
    subject: &impl Once,
    name: &str,
    count: usize,
    tasks: usize,
) -> Result<(), Failure> {
    let mut all: JoinSet<Result<(), Failure>> = JoinSet::new();
    for task in 0..tasks.min(count) {
        let (subject, name) = (subject.clone(), name.to_owned());
        all.spawn(async move {
            for i in (task..count).step_by(tasks) {
                subject.once(&format!("{name}/{i}")).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    Ok(())
}
