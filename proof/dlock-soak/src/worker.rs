//! One task of a child: it acquires, holds and releases locks at random, and writes each event to
//! the log file of its process.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    Certainty, Ended, Error, ErrorKind, FencingToken, Guard, Instant, Lock, LockOptions, Locks,
    Mode, Released, Renew,
};
use dlock_testkit::{
    Stop, Verdict,
    support::{now, polls},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    line::{self, Line, Phase, REFUSED, What},
    plan::{Kind, Target},
    resource::Writer,
};

/// The interval at which a holder checks whether it still holds the lock.
const LOOK: Duration = Duration::from_millis(10);

/// A task that acquires locks.
pub(super) struct Worker {
    task: usize,
    rng: StdRng,
    locks: Locks,
    log: Arc<Log>,
    targets: Arc<[Target]>,
    phases: watch::Receiver<Phase>,
    lease: Duration,
    /// The percentage of long holds.
    long: u32,
    cancels: Arc<Cancels>,
}

/// The percentage of attempts that are cancelled, and the number cancelled so far.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    pub(super) percent: AtomicU32,
    pub(super) dropped: AtomicUsize,
}

impl Worker {
    pub(super) fn new(
        task: usize,
        seed: u64,
        locks: Locks,
        log: Arc<Log>,
        targets: Arc<[Target]>,
        phases: watch::Receiver<Phase>,
    ) -> Self {
        let rng = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(task as u64));
        let lease = LockOptions::MIN_LEASE;
        let cancels = Arc::default();
        Self { task, rng, locks, log, targets, phases, lease, long: 0, cancels }
    }

    pub(super) fn with_lease(self, lease: Duration, long: u32) -> Self {
        Self { lease, long, ..self }
    }

    pub(super) fn with_cancels(self, cancels: Arc<Cancels>) -> Self {
        Self { cancels, ..self }
    }

    /// Works until the phase [`Phase::End`].
    pub(super) async fn work(mut self) -> Verdict {
        loop {
            let phase = *self.phases.borrow();
            if phase == Phase::End {
                return Ok(());
            }
            self.round(phase).await?;
            let pause = self.rng.random_range(0..4);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn round(&mut self, phase: Phase) -> Verdict {
        let attempt = self.attempt(phase)?;
        let mut holds = Vec::new();
        for name in &attempt.target.names {
            let (kind, mode, name) = (attempt.target.kind.wanted(), attempt.mode, name.clone());
            holds.push(self.log.ask(What::Ask { task: self.task, kind, phase, mode, name })?);
        }
        let percent = self.cancels.percent.load(Ordering::Relaxed);
        let cancel = phase == Phase::Storm && self.rng.random_range(0..100) < percent;
        let answer = if cancel {
            self.until_cancelled(attempt.take()).await
        } else {
            let (again, answer) = attempt.insist().await;
            if again > 0 {
                self.write_all(&holds, now(), &What::Again {})?;
            }
            Some(answer)
        };
        let (how, text) = match answer {
            Some(Ok(Some(guard))) => return self.hold(guard, &attempt, &holds).await,
            Some(Ok(None)) => (line::BUSY.to_owned(), String::new()),
            Some(Err(error)) => (kind(&error), error.to_string()),
            None => {
                self.cancels.dropped.fetch_add(1, Ordering::Relaxed);
                (line::CANCELLED.to_owned(), String::new())
            }
        };
        let at = now();
        for &hold in &holds {
            let (how, text) = (how.clone(), text.clone());
            self.log.write(hold, at, What::Not { how, text })?;
        }
        Ok(())
    }

    fn attempt(&mut self, phase: Phase) -> Result<Attempt, Stop> {
        let rng = &mut self.rng;
        let target = self.targets[rng.random_range(0..self.targets.len())].clone();
        let mode = match target.kind {
            Kind::ReadWrite if rng.random_bool(0.6) => Mode::Shared,
            Kind::Semaphore(of) => Mode::permits(rng.random_range(1..=of.min(2)), of)?,
            _ => Mode::Exclusive,
        };
        // The options vary little: tasks with equal options hand off locks to each other.
        let renew = if rng.random_bool(0.4) { Renew::Auto } else { Renew::Never };
        let options = LockOptions::new().with_lease(self.lease).with_renew(renew);
        let mut locks = self.locks.with_options(options)?;
        if rng.random_bool(0.4) {
            locks = locks.without_handoff();
        }
        let wait = match (phase, rng.random_range(0..10)) {
            (Phase::Calm | Phase::Well, _) => Wait::For(LONGEST_WAIT),
            (_, 0) => Wait::Try,
            (_, 1) => Wait::Ever,
            _ => Wait::For(Duration::from_millis(rng.random_range(5..1500))),
        };
        Ok(Attempt { target, mode, locks, wait, phase })
    }

    /// Drops the future after a random number of polls or a random time.
    async fn until_cancelled<F: Future>(&mut self, taking: F) -> Option<F::Output> {
        if self.rng.random_bool(0.5) {
            let polls = self.rng.random_range(0..8);
            return match polls::drop_after(polls, taking).await {
                polls::Ended::Completed(answer) => Some(answer),
                _ => None,
            };
        }
        let longest = Duration::from_micros(self.rng.random_range(0..40_000));
        timeout(longest, taking).await.ok()
    }

    async fn hold(&mut self, mut guard: Guard, attempt: &Attempt, holds: &[u64]) -> Verdict {
        let (at, until) = hold_times(&guard);
        let mut writes = Vec::new();
        for ((&hold, name), token) in
            holds.iter().zip(&attempt.target.names).zip(tokens(&guard, attempt)?)
        {
            self.log.write(hold, at, What::Got { token, until: until.unwrap_or(at) })?;
            if attempt.mode == Mode::Exclusive {
                writes.push((hold, token, name.as_str()));
            }
        }
        if until.is_some() {
            self.stay(&mut guard, attempt, holds, &mut writes, at).await?;
        }
        let (at, _) = hold_times(&guard);
        self.write_all(holds, at, &What::Let {})?;
        match self.rng.random_range(0..10) {
            0..3 => drop(guard),
            3 => {
                // The release begins, and continues in the background.
                let polls = self.rng.random_range(0..3);
                let _ = polls::drop_after(polls, guard.release()).await;
            }
            _ => {
                let how = match guard.release().await {
                    Ok(Released::Released) => line::RELEASED,
                    Ok(_) => line::GONE,
                    Err(_) => line::UNKNOWN,
                };
                self.write_all(holds, now(), &What::Left { how: how.to_owned() })?;
            }
        }
        Ok(())
    }

    /// Holds the lock for a while, and logs its local deadline.
    async fn stay(
        &mut self,
        guard: &mut Guard,
        attempt: &Attempt,
        holds: &[u64],
        writes: &mut Vec<(u64, FencingToken, &str)>,
        since: Instant,
    ) -> Verdict {
        let is_long = self.rng.random_range(0..100) < self.long;
        let time = match attempt.phase {
            // This time may exceed the lease, unless the lease is renewed.
            Phase::Storm if is_long => self.lease.mul_f64(self.rng.random_range(0.8..2.0)),
            Phase::Storm => Duration::from_micros(self.rng.random_range(0..20_000)),
            _ => Duration::from_micros(self.rng.random_range(0..4_000)),
        };
        let writer = attempt.target.kind == Kind::ReadWrite && attempt.mode == Mode::Exclusive;
        if writer && self.rng.random_bool(0.3) {
            self.write_all(holds, now(), &What::Share {})?;
            // Whatever the result, the guard is a reader's from now on, or lost.
            let _ = guard.downgrade().await;
            self.write_all(holds, now(), &What::Look {})?;
            writes.clear();
        }
        let end = since.saturating_add(time);
        loop {
            // The writes come without a check of the guard, as if the process had been stopped just
            // after one.
            for &(hold, token, name) in &*writes {
                self.log.apply(hold, token, name)?;
            }
            let left = end.since(now());
            // A hold that began while faults were injected must not block others in the phase
            // without faults.
            let calm = attempt.phase == Phase::Storm && *self.phases.borrow() != Phase::Storm;
            if left.is_zero() || calm {
                return Ok(());
            }
            let mut lost = pin!(guard.lost());
            let ended = timeout(left.min(LOOK), &mut lost).await;
            let (at, until) = hold_times(guard);
            match (until, ended) {
                (Some(until), _) => self.write_all(holds, at, &What::Keep { until })?,
                (None, ended) => {
                    let how = match ended {
                        Ok(ended) => loss_label(ended),
                        Err(_) => loss_label(lost.await),
                    };
                    return self.write_all(holds, at, &What::Lost { how: how.to_owned() });
                }
            }
        }
    }

    fn write_all(&self, holds: &[u64], at: Instant, what: &What) -> Verdict {
        holds.iter().try_for_each(|&hold| self.log.write(hold, at, what.clone()))
    }
}

const fn loss_label(ended: Ended) -> &'static str {
    match ended {
        Ended::Revoked => line::REVOKED,
        Ended::ClockStep => line::CLOCK_STEP,
        Ended::StoreReset => line::STORE_RESET,
        _ => line::EXPIRED,
    }
}

/// The longest wait in the phases without faults. It is a generous limit for a busy machine.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(12);

/// The pause before the next request to a store that was unreachable.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of one attempt.
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) mode: Mode,
    pub(super) locks: Locks,
    pub(super) wait: Wait,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy)]
pub(super) enum Wait {
    Try,
    For(Duration),
    Ever,
}

impl Attempt {
    /// Acquires the lock. After the faults, it retries while the store is unreachable. Returns the
    /// number of retries, and the result.
    pub(super) async fn insist(&self) -> (usize, Result<Option<Guard>, Error>) {
        let end = now().saturating_add(LONGEST_WAIT);
        let mut again = 0;
        loop {
            match self.take().await {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && self.phase != Phase::Storm
                        && now() < end =>
                {
                    sleep(PAUSE).await;
                    again += 1;
                }
                answer => return (again, answer),
            }
        }
    }

    pub(super) async fn take(&self) -> Result<Option<Guard>, Error> {
        let (locks, names) = (&self.locks, &self.target.names);
        let name = names.first().map_or("", String::as_str);
        match (self.target.kind, self.mode) {
            (Kind::Mutex, _) => self.take_one(&locks.mutex(name)?).await,
            (Kind::Fair, _) => self.take_one(&locks.fair(name)?).await,
            (Kind::Multi, _) => {
                let names = names.iter().map(String::as_str);
                self.take_one(&locks.multi(names)?).await
            }
            (Kind::ReadWrite, Mode::Shared) => self.take_one(locks.rw(name)?.read()).await,
            (Kind::ReadWrite, _) => self.take_one(locks.rw(name)?.write()).await,
            (Kind::Semaphore(permits), mode) => {
                let (semaphore, n) = (locks.semaphore(name, permits)?, mode.weight());
                match self.wait {
                    Wait::Try => semaphore.try_acquire_many(n).await,
                    Wait::For(wait) => semaphore.acquire_many_timeout(n, wait).await.map(Some),
                    Wait::Ever => semaphore.acquire_many(n).await.map(Some),
                }
            }
        }
    }

    async fn take_one(&self, lock: &dyn Lock) -> Result<Option<Guard>, Error> {
        match self.wait {
            Wait::Try => lock.try_lock().await,
            Wait::For(wait) => lock.lock_timeout(wait).await.map(Some),
            Wait::Ever => lock.lock().await.map(Some),
        }
    }
}

/// Returns the token of each name, in the order of the attempt's names.
pub(super) fn tokens(guard: &Guard, attempt: &Attempt) -> Result<Vec<FencingToken>, Stop> {
    let tokens = guard.tokens();
    let of = |name: &String| {
        let found = tokens.iter().find(|(of, _)| of.as_str() == name);
        found.map(|(_, token)| *token).ok_or_else(|| Stop::failed("a guard without a token"))
    };
    attempt.target.names.iter().map(of).collect()
}

/// Returns the kind of the error as one word.
pub(super) fn kind(error: &Error) -> String {
    match (error.kind(), error.certainty()) {
        (ErrorKind::Unavailable, Certainty::NotApplied) => REFUSED.to_owned(),
        // The text may contain a value in brackets with spaces.
        (kind, _) => format!("{kind:?}").replace(' ', ""),
    }
}

/// The log of one process. A written line survives the death of the process.
#[derive(Debug)]
pub(super) struct Log {
    to: To,
    next: AtomicU64,
}

#[derive(Debug)]
enum To {
    Files { process: usize, file: File, resource: Writer },
    Simulation(Box<dyn Collector>),
}

/// Receives the lines and the writes of a simulated process.
pub(super) trait Collector: fmt::Debug + Send + Sync {
    fn line(&self, hold: Option<u64>, at: Instant, what: What);
    fn write(&self, hold: u64, at: Instant, token: FencingToken, name: &str);
}

impl Log {
    /// Opens the log file to append to it, and connects to the resource.
    pub(super) fn open(process: usize, path: &Path, resource: &Path) -> Result<Self, Stop> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let resource = Writer::open(process, resource)?;
        Ok(Self { to: To::Files { process, file, resource }, next: AtomicU64::new(1) })
    }

    /// Returns the log of a simulated process.
    pub(super) fn of(collector: impl Collector + 'static) -> Self {
        Self { to: To::Simulation(Box::new(collector)), next: AtomicU64::new(1) }
    }

    /// Returns whether the process is simulated.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self.to, To::Simulation(_))
    }

    /// Records that an attempt begins. Returns the number that identifies it in later lines.
    pub(super) fn ask(&self, what: What) -> Result<u64, Stop> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(hold, now(), what)?;
        Ok(hold)
    }

    /// Writes to the resource that the lock protects, and not to the log.
    pub(super) fn apply(&self, hold: u64, token: FencingToken, name: &str) -> Verdict {
        match &self.to {
            To::Files { resource, .. } => resource.write(hold, token, name),
            To::Simulation(collector) => {
                collector.write(hold, now(), token, name);
                Ok(())
            }
        }
    }

    /// Writes one line about an acquisition, in one system call.
    pub(super) fn write(&self, hold: u64, at: Instant, what: What) -> Verdict {
        self.append(Some(hold), at, what)
    }

    /// Writes one line about the process, in one system call.
    pub(super) fn write_own(&self, at: Instant, what: What) -> Verdict {
        self.append(None, at, what)
    }

    fn append(&self, hold: Option<u64>, at: Instant, what: What) -> Verdict {
        match &self.to {
            To::Files { process, file, .. } => {
                let line = Line { process: *process, hold, at, what };
                // Several tasks write at the same time: the system appends each write as a whole.
                let mut file = file;
                Ok(file.write_all(format!("{line}\n").as_bytes())?)
            }
            To::Simulation(collector) => {
                collector.line(hold, at, what);
                Ok(())
            }
        }
    }
}

/// Returns the current time and the local deadline of the guard, which may be reported too early
/// but never too late. The deadline is `None` once the lock is lost.
pub(super) fn hold_times(guard: &Guard) -> (Instant, Option<Instant>) {
    // The order matters: if the process is stopped in between, the computed deadline is too early,
    // not too late.
    let at = now();
    let left = guard.remaining();
    (at, (!left.is_zero()).then(|| at.saturating_add(left)))
}
