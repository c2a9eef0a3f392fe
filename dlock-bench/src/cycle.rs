//! Taking a lock and giving it back: by dlock, or by whatever it is compared with.

use std::time::Duration;

use dlock::{Fair, Mutex};
use tokio::task::JoinSet;

use crate::{Failure, clock, runtime::as_task, stats};

/// Something that can be taken and given back.
pub(crate) trait Cycle: Send + Sized + 'static {
    /// Takes it and gives it back.
    fn cycle(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl Cycle for Mutex {
    async fn cycle(&mut self) -> Result<(), Failure> {
        self.lock().await?.release().await?;
        Ok(())
    }
}

impl Cycle for Fair {
    async fn cycle(&mut self) -> Result<(), Failure> {
        self.lock().await?.release().await?;
        Ok(())
    }
}

/// The median of one cycle after another, in microseconds. Gives the subject back.
pub(crate) async fn latency<C: Cycle>(mut subject: C, cycles: usize) -> Result<(C, f64), Failure> {
    as_task(async move {
        let mut took = Vec::with_capacity(cycles);
        for _ in 0..cycles {
            let start = clock::now();
            subject.cycle().await?;
            took.push(clock::since(start));
        }
        Ok((subject, stats::median(took)))
    })
    .await
}

/// What many tasks got done at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throughput {
    /// How many cycles.
    pub(crate) cycles: f64,
    /// How many cycles a second.
    pub(crate) rate: f64,
}

/// One task for each subject, for so long. Gives the subjects back.
pub(crate) async fn throughput<C: Cycle>(
    subjects: Vec<C>,
    lasts: Duration,
) -> Result<(Vec<C>, Throughput), Failure> {
    let start = clock::now();
    let mut tasks: JoinSet<Result<(C, u32), Failure>> = JoinSet::new();
    for mut subject in subjects {
        tasks.spawn(async move {
            let mut cycles = 0;
            while clock::since(start) < lasts {
                subject.cycle().await?;
                cycles += 1;
            }
            Ok((subject, cycles))
        });
    }
    let mut subjects = Vec::with_capacity(tasks.len());
    let mut cycles = 0.0;
    while let Some(done) = tasks.join_next().await {
        let (subject, its) = done??;
        subjects.push(subject);
        cycles += f64::from(its);
    }
    Ok((subjects, Throughput { cycles, rate: cycles / clock::since(start).as_secs_f64() }))
}
