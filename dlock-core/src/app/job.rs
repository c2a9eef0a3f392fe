//! Jobs that run once in a fleet, however many machines want to run them.

use std::{sync::Arc, time::Duration};

use crate::{
    Ended, Error, ErrorKind, FencingToken, Guard, Instant, LockName, Mode, OrphanRelease,
    engine::Engine,
    kinds::Base,
    support::{labels::Kind, retry::Wait},
};

/// A job that every machine of a fleet wants to run at the same time, and one is to run: what
/// [`Locks::job`](crate::Locks::job) makes.
///
/// Whoever comes first takes the lock of that name and runs it; the others find it busy and go on.
/// Their timers do not fire at once, though: one may be late by more than the job takes.
/// [`with_at_least`](Self::with_at_least) keeps the lock for so long after the job began, also when
/// the job, or the whole process, has ended before.
///
/// ```
/// use std::time::Duration;
/// use dlock_core::{Locks, Memory, Ran};
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
/// At the most, the lock is held for one lease after its process has died; a job that hangs gives
/// way after [`Renew::For`](crate::Renew::For), if that is among the options. It has to be shorter
/// than the period, or the job of the next period finds it busy.
#[derive(Clone, Debug)]
pub struct Job {
    base: Base,
    at_least: Duration,
}

/// Whether a [`Job`] ran here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there is no third")]
#[must_use = "it may have run elsewhere"]
pub enum Ran<T> {
    /// It ran here, with this outcome.
    Done(T),
    /// It runs elsewhere, or ran there a short while ago.
    Elsewhere,
}

impl<T> Ran<T> {
    /// The outcome, if it ran here.
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

    /// The name of the job, and of its lock: a mutex of the same name excludes it.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    /// With the lock kept for at least so long after the job began: longer than clocks and timers of
    /// the fleet differ, and shorter than the period. Zero unless set; at most
    /// [`MAX_LEASE`](crate::LockOptions::MAX_LEASE). The store keeps the lock for the time that is
    /// left when the job ends, without this process; times below
    /// [`MIN_LEASE`](crate::LockOptions::MIN_LEASE) are rounded up to that.
    ///
    /// # Errors
    /// `Unsupported` where locks end with the session of their process (ZooKeeper, PostgreSQL's
    /// advisory locks), since nothing stays of a job whose process has ended. `Config(Lease)` for
    /// more than a store keeps, or may forget: on Redis, more than `dlock.restart_guard`.
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

    /// Runs `work` with the fencing token, unless it runs elsewhere or has just run.
    ///
    /// However `work` ends, also by a panic or because this future is dropped, the lock is kept for
    /// the minimum time: a job that failed is not run again by the next machine whose timer fires.
    /// [`run_or_release`](Self::run_or_release) does that. When the lock is lost, `work` is dropped
    /// where it stands. A process that dies in the middle of `work` leaves the lock to its lease.
    ///
    /// The store has been told of the minimum time when this returns. If it can't be, the outcome is
    /// returned all the same, and a warning tells of it.
    ///
    /// # Errors
    /// `Lost`, also when `work` outlived the lock because it blocked its thread, or when the store
    /// says so at the end: then [`Error::take_output`] gives what `work` gave. As
    /// [`Lock::try_lock`](crate::Lock::try_lock) when the store can't be asked, and then nothing ran
    /// here.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the store is told in the background, and
    /// [`shutdown`](crate::Locks::shutdown) waits for that, but not for the minimum time.
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

    /// As [`run`](Self::run), but keeps the minimum time only after a success: when `work` fails,
    /// panics or is dropped, the lock is released at once, so that another machine may try.
    ///
    /// # Errors
    /// As [`run`](Self::run), with the `Result` of `work` as its output. What `work` failed with is
    /// in [`Ran::Done`].
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
        stay.keep = outcome.is_ok();
        stay.end(outcome).await.map(Ran::Done)
    }

    /// Takes the lock, if it is free.
    async fn begin(&self, keep: bool) -> Result<Option<Stay>, Error> {
        let (engine, name) = (self.base.engine(), &self.base.name);
        let take = async {
            // A store may stand for less than when the minimum time was set.
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
            Stay { guard, engine, name: name.clone(), until, keep }
        }))
    }
}

/// The warning of a release that fails.
const FAILED: &str = "release failed after the work was done";

/// The lock of a job while it runs, and what becomes of it.
struct Stay {
    /// Taken by the end.
    guard: Option<Guard>,
    engine: Arc<Engine>,
    name: LockName,
    /// Until when the store is to keep it.
    until: Option<Instant>,
    /// Whether it is to, should the job end now.
    keep: bool,
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

    /// Ends it, and waits until the store knows: gives the outcome if the lock was held until then.
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
            // It was held when the work had ended, and nobody has said otherwise since.
            Ended::Expired | Ended::Released => Ok(outcome),
            how => Err(Error::outlived(&self.name, how).during("run").with_output(outcome)),
        }
    }

    fn until(&self) -> Option<Instant> {
        self.until.filter(|_| self.keep)
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
