//! Names that are used once and never again.
//!
//! ```text
//! once NAME TASKS FROM UNTIL -> ok CYCLES...  each task uses one new name after the other
//! ```

use std::time::Duration;

use tokio::task::{JoinSet, coop::consume_budget};

use crate::{Failure, clock};

/// How long a process goes on after a run, so its last releases do not disturb the next one.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// A subject that knows the cheapest way to use a name that nobody has used before.
pub(super) trait Once: Clone + Send + Sync + 'static {
    /// Takes its lock and gives it back.
    fn once(&self, name: &str) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Does what the line says, if it is one of these.
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
                // As the rest of an application does: a lock that is free never makes it wait.
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

/// Uses so many names once each, so many at a time.
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
