//! Many names at one time, each by a mutex of its own.

use dlock::{Guard, Locks};
use tokio::task::JoinSet;

use crate::{Failure, cycle::Cycle};

/// How many tasks share the names among them.
pub(crate) const TASKS: u32 = 64;

/// Takes and gives back each of so many names once.
pub(crate) async fn use_all(locks: &Locks, names: u32) -> Result<(), Failure> {
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    for task in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            for i in (task..names).step_by(usize::try_from(TASKS)?) {
                locks.mutex(format!("once/{i}"))?.cycle().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Takes each of so many names, and keeps them.
pub(crate) async fn hold_all(locks: &Locks, names: u32) -> Result<Vec<Guard>, Failure> {
    let mut tasks: JoinSet<Result<Vec<Guard>, Failure>> = JoinSet::new();
    for task in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for i in (task..names).step_by(usize::try_from(TASKS)?) {
                guards.push(locks.mutex(format!("held/{i}"))?.lock().await?);
            }
            Ok(guards)
        });
    }
    let mut guards = Vec::new();
    while let Some(done) = tasks.join_next().await {
        guards.extend(done??);
    }
    Ok(guards)
}
