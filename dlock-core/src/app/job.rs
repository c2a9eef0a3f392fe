//! Jobs that run once in a fleet, on any of its machines.

use std::{sync::Arc, time::Duration};

use crate::{
    Ended, Error, ErrorKind, FencingToken, Guard, Instant, LockName, Mode, OrphanRelease,
    engine::Engine,
    kinds::Base,
    support::{labels::Kind, retry::Wait},
};

/// A job that all machines of a fleet start at the same time, and that only one of them runs.
/// Created by [`Locks::job`](crate::Locks::job).
///
/// The first machine acquires the lock of that name and runs the job; the others find the lock busy
/// and skip the job. Their timers do not fire at exactly the same time: one may be late by more
/// than the job takes. [`with_at_least`](Self::with_at_least) keeps the lock for a minimum time
/// after the job began, even if the job or the whole process has ended before.
///
/// ```
/// use std::time::Duration;
/// # mod dlock { pub use dlock_core::*; pub mod backend { pub use dlock_core::*; } pub mod job { pub use dlock_core::*; } }
/// use dlock::{Locks, backend::Memory, job::Ran};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
/// let locks = Locks::new(Memory::new())?;
/// let report = locks.job("nightly/report")?.with_at_least(Duration::from_secs(600))?;
/// let ran = report.run(|token| async move { format!("written with token {token}") }).await?;
/// assert!(matches!(ran, Ran::Done(_)));
/// // Another machine, whose clock is a little behind.
/// assert!(matches!(report.run(|_| async { "again" }).await?, Ran::Elsewhere));
/// # Ok(()) }
/// ```
///
/// After the process dies, the lock stays held for one lease at most. A job that hangs loses the
/// lock after [`Renew::For`](crate::Renew::For), if the options set it. That time has to be shorter
/// than the period; otherwise the job of the next period finds the lock busy.
#[derive(Clone, Debug)]
pub struct Job {
    base: Base,
    at_least: Duration,
}

/// The result of a [`Job`]: whether it ran here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
#[must_use = "it may have run elsewhere"]
pub enum Ran<T> {
    /// The job ran here, with this outcome.
    Done(T),
    /// The job runs elsewhere, or ran there a short while ago.
    Elsewhere,
}

impl<T> Ran<T> {
    /// Returns the outcome if the job ran here.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(outcome) => Some(outcome),
            Self::Elsewhere => None,
        }
    }
}

impl Job {
    pub(crate) fn new(base: Base) -> Self {
        Self { base, at_least: Duration::ZERO }
    }

    /// The name of the job and of its lock. A mutex of the same name excludes the job.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    /// Sets the minimum time for which the lock is kept after the job began. It should be longer
    /// than the difference between the clocks and timers of the fleet, and shorter than the period.
    /// The default is zero, the maximum [`MAX_LEASE`](crate::LockOptions::MAX_LEASE). When the job
    /// ends, the store keeps the lock for the rest of this time, without this process. Times below
    /// [`MIN_LEASE`](crate::LockOptions::MIN_LEASE) are rounded up to it.
    ///
    /// # Errors
    /// `Unsupported` if locks end with the session of their process (ZooKeeper, etcd, PostgreSQL's
    /// advisory locks), since the store keeps nothing after the process has ended. `Config(Lease)`
    /// for a time that is longer than the store keeps, or that the store may forget: on Redis, more
    /// than `dlock.restart_guard`.
    pub fn with_at_least(mut self, at_least: Duration) -> Result<Self, Error> {
        let backend = &self.base.engine().backend;
        let ends_with_session =
            backend.guarantees().orphan_release == OrphanRelease::SessionEnd && !at_least.is_zero();
        let fits = if ends_with_session {
            Err(Error::new(
                ErrorKind::Unsupported,
                "this store frees a lock when its process ends, so it can't keep one after a job: \
                 use a store with leases (Redis or SQL tables), or no minimum time",
            ))
        } else {
            self.base.engine().check_lease(at_least)
        };
        fits.map_err(|error| error.with_lock(&self.base.name).with_store(backend.store()))?;
        self.at_least = at_least;
        Ok(self)
    }

    /// Runs `work` with the fencing token, unless the job runs elsewhere or has just run.
    ///
    /// The lock is kept for the minimum time even if `work` fails or panics, or if this future is
    /// dropped: a failed job is not run again by the next machine whose timer fires.
    /// [`run_or_release`](Self::run_or_release) lets that machine run it. If the lock is lost, the
    /// future of `work` is dropped. If the process dies during `work`, the lock stays held until
    /// its lease expires.
    ///
    /// When this returns, the store has received the minimum time. If the store can't be reached,
    /// `run` still returns the outcome, and a warning reports the failure.
    ///
    /// # Errors
    /// `Lost`, also if `work` outlived the lock because it blocked its thread, or if the store
    /// reports the loss at the end: then [`Error::take_output`] returns the output of `work`. The
    /// errors of [`Lock::try_lock`](crate::Lock::try_lock) if the lock can't be acquired; then
    /// `work` did not run.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`. A background task then sends the minimum time to the
    /// store; [`shutdown`](crate::Locks::shutdown) waits for that request, but not for the minimum
    /// time.
    pub async fn run<T, Work, Fut>(&self, work: Work) -> Result<Ran<T>, Error>
    where
        T: Send + 'static,
        Work: FnOnce(FencingToken) -> Fut,
        Fut: Future<Output = T>,
    {
        let Some(stay) = self.begin(true).await? else { return Ok(Ran::Elsewhere) };
        let (outcome, stay) = stay.run(work).await?;
        stay.end(outcome).await.map(Ran::Done)
    }

    /// As [`run`](Self::run), but keeps the minimum time only after a success. If `work` fails,
    /// panics or is dropped, the lock is released at once, so that another machine may run the job.
    ///
    /// # Errors
    /// As [`run`](Self::run), with the `Result` of `work` as its output. An error of `work` is
    /// returned in [`Ran::Done`].
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and releases in the background.
    pub async fn run_or_release<T, E, Work, Fut>(
        &self,
        work: Work,
    ) -> Result<Ran<Result<T, E>>, Error>
    where
        T: Send + 'static,
        E: Send + 'static,
        Work: FnOnce(FencingToken) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let Some(stay) = self.begin(false).await? else { return Ok(Ran::Elsewhere) };
        let (outcome, mut stay) = stay.run(work).await?;
        stay.keeps_lock = outcome.is_ok();
        stay.end(outcome).await.map(Ran::Done)
    }

    /// Acquires the lock if it is free.
    async fn begin(&self, keeps_lock: bool) -> Result<Option<Stay>, Error> {
        let (engine, name) = (self.base.engine(), &self.base.name);
        let take = async {
            // The longest lease of the store may have become shorter since the minimum time was
            // set.
            if !self.at_least.is_zero() {
                engine.check_lease(self.at_least)?;
            }
            self.base.take(Mode::Exclusive, Wait::Try).await
        };
        let taken = engine.meter.acquiring(Kind::Job, take).await;
        let taken =
            taken.map_err(|error| error.with_lock(name).with_store(engine.backend.store()))?;
        let until =
            (!self.at_least.is_zero()).then(|| engine.clock.now().saturating_add(self.at_least));
        Ok(taken.map(|held| {
            let (guard, engine) = (Some(Guard::one(held)), Arc::clone(engine));
            Stay { guard, engine, name: name.clone(), until, keeps_lock }
        }))
    }
}

/// The text of the warning for a failed release.
const FAILED: &str = "release failed after the work was done";

/// The lock of a job while it runs, and its state after the end of the job.
struct Stay {
    /// `None` after the end.
    guard: Option<Guard>,
    engine: Arc<Engine>,
    name: LockName,
    /// The time until which the store keeps the lock.
    until: Option<Instant>,
    /// Whether the store keeps the lock if the job ends now.
    keeps_lock: bool,
}

impl Stay {
    async fn run<T, Work, Fut>(mut self, work: Work) -> Result<(T, Self), Error>
    where
        T: Send + 'static,
        Work: FnOnce(FencingToken) -> Fut,
        Fut: Future<Output = T>,
    {
        let Some(guard) = &self.guard else {
            return Err(Error::lost(&self.name, Ended::Released));
        };
        match guard.run(work(guard.token())).await {
            Ok(outcome) => Ok((outcome, self)),
            Err(lost) => match self.guard.take() {
                Some(guard) => guard.end(Err(lost), FAILED).await.map(|outcome| (outcome, self)),
                None => Err(lost),
            },
        }
    }

    /// Ends the job and waits for the store's answer. Returns the outcome if the lock was held
    /// until then.
    async fn end<T: Send + 'static>(mut self, outcome: T) -> Result<T, Error> {
        let until = self.until();
        let Some(guard) = self.guard.take() else { return Ok(outcome) };
        let Some(until) = until else { return guard.end(Ok(outcome), FAILED).await };
        let ended = guard.part(until).await;
        if ended == Ended::Released && !self.engine.holds.is_stopped() {
            return Ok(outcome);
        }
        tracing::warn!(
            target: "dlock",
            { lock.name = %self.name, reason = %ended },
            "minimum time of a job was cut short"
        );
        match ended {
            // The lock was held when the work ended, and the store has not reported a loss since.
            Ended::Expired | Ended::Released => Ok(outcome),
            how => Err(Error::outlived(&self.name, how).during("run").with_output(outcome)),
        }
    }

    fn until(&self) -> Option<Instant> {
        self.until.filter(|_| self.keeps_lock)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take()
            && let Some(until) = self.until()
        {
            drop(guard.part(until));
        }
    }
}
