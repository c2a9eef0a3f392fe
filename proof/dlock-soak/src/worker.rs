//! One task of a child: it acquires, holds and releases locks at random, and writes each event to
//! the log file of its process.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    Certainty, Ended, Error, ErrorKind, FencingToken, Guard, Instant, Lock, LockOptions, Locks,
    Mode, MultiMutex, Owner, Released, Renew,
};
use dlock_testkit::{
    Stop, Verdict,
    support::{ensure, now, polls},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    line::{self, Phase, REFUSED, What},
    log::Log,
    plan::{Kind, Target},
};

/// The interval at which a holder checks whether it still holds the lock.
const LOOK: Duration = Duration::from_millis(10);

/// A task that acquires locks.
pub(super) struct Worker {
    task: usize,
    rng: StdRng,
    locks: Locks,
    second: Locks,
    log: Arc<Log>,
    targets: Arc<[Target]>,
    phases: watch::Receiver<Phase>,
    /// The identity of the task as a holder of reentrant locks.
    owner: Owner,
    lease: Duration,
    lock_delay: Duration,
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
        let (lease, lock_delay) = (LockOptions::MIN_LEASE, Duration::ZERO);
        let (owner, long, cancels, second) = (Owner::new(), 0, Arc::default(), locks.clone());
        Self {
            task,
            rng,
            locks,
            second,
            log,
            targets,
            phases,
            owner,
            lease,
            lock_delay,
            long,
            cancels,
        }
    }

    pub(super) fn with_lease(self, lease: Duration, lock_delay: Duration, long: u32) -> Self {
        Self { lease, lock_delay, long, ..self }
    }

    /// Sets the second client, for multi-locks over two of them.
    pub(super) fn with_second(self, second: &Locks) -> Self {
        Self { second: second.clone(), ..self }
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
        if let (Kind::Job(_) | Kind::Election, &[hold]) = (attempt.target.kind, &*holds) {
            return self.run(&attempt, hold, cancel).await;
        }
        let answer = if cancel {
            self.until_cancelled(attempt.take()).await
        } else {
            let (again, answer) = attempt.insist(|| attempt.take()).await;
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
        let is_job = matches!(target.kind, Kind::Job(_));
        let (renew, limit) = match rng.random_range(0..10) {
            0..4 => (Renew::Auto, None),
            // A job that is not renewed mostly loses its lock before its minimum time counts.
            _ if is_job => (Renew::Auto, None),
            4 => (Renew::For(self.lease * 3 / 2), Some(self.lease * 3 / 2)),
            _ => (Renew::Never, Some(self.lease)),
        };
        let options = LockOptions::new().with_lease(self.lease).with_renew(renew);
        let options = options.with_lock_delay(self.lock_delay);
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
        let (owner, second) = (self.owner, self.second.with_options(options)?);
        Ok(Attempt { second, target, mode, locks, wait, phase, limit, owner })
    }

    /// How long a holder keeps the lock.
    fn time(&mut self, phase: Phase) -> Duration {
        let is_long = self.rng.random_range(0..100) < self.long;
        match phase {
            // This time may exceed the lease, unless the lease is renewed.
            Phase::Storm if is_long => self.lease.mul_f64(self.rng.random_range(0.3..2.0)),
            Phase::Storm => Duration::from_micros(self.rng.random_range(0..20_000)),
            _ => Duration::from_micros(self.rng.random_range(0..4_000)),
        }
    }

    /// Runs a job, or leads once.
    async fn run(&mut self, attempt: &Attempt, hold: u64, cancel: bool) -> Verdict {
        let (log, time) = (Arc::clone(&self.log), self.time(attempt.phase));
        let work = Work { log: &log, attempt, hold, time, began: OnceLock::new() };
        let ran = match cancel {
            true => self.until_cancelled(attempt.run(&work)).await,
            false => Some(attempt.insist(|| attempt.run(&work)).await.1),
        };
        let at = now();
        if work.began.get().is_some() {
            log.write(hold, at, What::Let {})?;
            if let (Kind::Job(at_least), Some(Ok(true))) = (attempt.target.kind, ran)
                && !at_least.is_zero()
            {
                work.log_promise(at_least).await?;
            }
            return Ok(());
        }
        let (how, text) = match ran {
            Some(Ok(_)) => (line::BUSY.to_owned(), String::new()),
            // It was lost before the work began.
            Some(Err(error)) if error.kind() == ErrorKind::Lost => {
                (line::EXPIRED.to_owned(), error.to_string())
            }
            Some(Err(error)) => (kind(&error), error.to_string()),
            None => (line::CANCELLED.to_owned(), String::new()),
        };
        log.write(hold, at, What::Not { how, text })
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
        let time = self.time(attempt.phase);
        if attempt.target.kind == Kind::Reentrant && self.rng.random_bool(0.5) {
            self.enter_again(guard, attempt).await?;
            self.write_all(holds, now(), &What::Look {})?;
        }
        let writer = attempt.target.kind == Kind::ReadWrite && attempt.mode == Mode::Exclusive;
        if writer && self.rng.random_bool(0.3) {
            self.write_all(holds, now(), &What::Share {})?;
            // Whatever the result, the guard is a reader's from now on, or lost.
            let _ = guard.downgrade().await;
            self.write_all(holds, now(), &What::Look {})?;
            writes.clear();
            if !self.look(guard, holds).await? {
                return Ok(());
            }
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
            let _ = timeout(left.min(LOOK), guard.lost()).await;
            if !self.look(guard, holds).await? {
                return Ok(());
            }
            let limit = attempt.limit.map(|limit| since.saturating_add(limit));
            let until =
                hold_times(guard).1.filter(|until| limit.is_some_and(|limit| *until > limit));
            ensure!(until.is_none(), "renewed beyond the limit {limit:?}, until {until:?}");
        }
    }

    /// Enters a reentrant lock again, and drops the first or the second guard. The lock stays held.
    async fn enter_again(&mut self, guard: &mut Guard, attempt: &Attempt) -> Verdict {
        // It fails if the lock is lost.
        if let Ok(Some(mut other)) = attempt.take().await
            && other.token() == guard.token()
        {
            if self.rng.random_bool(0.5) {
                std::mem::swap(guard, &mut other);
            }
            drop(other);
        }
        Ok(())
    }

    /// Logs the local deadline of the guard, or its loss. Returns whether the lock is held.
    async fn look(&self, guard: &Guard, holds: &[u64]) -> Result<bool, Stop> {
        let (at, until) = hold_times(guard);
        let what = match until {
            Some(until) => What::Keep { until },
            None => What::Lost { how: loss_label(guard.lost().await).to_owned() },
        };
        self.write_all(holds, at, &what)?;
        Ok(until.is_some())
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
    pub(super) second: Locks,
    pub(super) wait: Wait,
    pub(super) phase: Phase,
    /// The longest time from the grant to the end of the last lease, if there is a limit.
    pub(super) limit: Option<Duration>,
    pub(super) owner: Owner,
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
    async fn insist<T, F>(&self, take: impl Fn() -> F) -> (usize, Result<T, Error>)
    where
        F: Future<Output = Result<T, Error>>,
    {
        let end = now().saturating_add(LONGEST_WAIT);
        let mut again = 0;
        loop {
            match take().await {
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
        let (locks, names, name) = (&self.locks, &self.target.names, self.name());
        match (self.target.kind, self.mode) {
            (Kind::Mutex, _) => self.take_one(&locks.mutex(name)?).await,
            (Kind::Fair, _) => self.take_one(&locks.fair(name)?).await,
            (Kind::Multi, _) => {
                let names = names.iter().map(String::as_str);
                self.take_one(&locks.multi(names)?).await
            }
            (Kind::Across, _) => {
                let clients = [locks, &self.second].into_iter().cycle();
                let parts =
                    names.iter().zip(clients).map(|(name, client)| client.mutex(name.as_str()));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                self.take_one(&MultiMutex::across(parts)?).await
            }
            (Kind::Reentrant, _) => {
                let (lock, owner) = (locks.reentrant(name)?, &self.owner);
                match self.wait {
                    Wait::Try => lock.try_lock_as(owner).await,
                    Wait::For(wait) => lock.lock_timeout_as(owner, wait).await.map(Some),
                    Wait::Ever => lock.lock_as(owner).await.map(Some),
                }
            }
            // These run work: see `run`.
            (Kind::Job(_) | Kind::Election, _) => Ok(None),
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

    /// Runs work as a job, or as the leader of an election. Returns whether it ran.
    async fn run(&self, work: &Work<'_>) -> Result<bool, Error> {
        let name = self.name();
        if let Kind::Job(at_least) = self.target.kind {
            let job = self.locks.job(name)?.with_at_least(at_least)?;
            return Ok(job.run(|token| work.steps(token)).await?.done().is_some());
        }
        let options = self.locks.options().with_wait(match self.wait {
            Wait::For(wait) => wait,
            Wait::Try | Wait::Ever => Duration::MAX,
        });
        let election = self.locks.with_options(options)?.election(name)?;
        let leadership = match self.wait {
            Wait::Try => election.try_campaign().await?,
            _ => Some(election.campaign().await?),
        };
        let Some(leadership) = leadership else { return Ok(false) };
        leadership.run(work.steps(leadership.term())).await?;
        let _ = leadership.resign().await;
        Ok(true)
    }

    fn name(&self) -> &str {
        self.target.names.first().map_or("", String::as_str)
    }

    async fn take_one(&self, lock: &dyn Lock) -> Result<Option<Guard>, Error> {
        match self.wait {
            Wait::Try => lock.try_lock().await,
            Wait::For(wait) => lock.lock_timeout(wait).await.map(Some),
            Wait::Ever => lock.lock().await.map(Some),
        }
    }
}

/// Work that runs under a lock, and that is dropped if the lock is lost.
struct Work<'a> {
    log: &'a Log,
    attempt: &'a Attempt,
    hold: u64,
    time: Duration,
    /// When it began, and its token.
    began: OnceLock<(Instant, FencingToken)>,
}

impl Work<'_> {
    /// Works in steps. The lock is held in each of them, so the last one is the end of the hold.
    async fn steps(&self, token: FencingToken) {
        let (log, hold, name, since) = (self.log, self.hold, self.attempt.name(), now());
        let _ = self.began.set((since, token));
        let (mut at, mut what) = (since, What::Got { token, until: since });
        while log.write(hold, at, what).and_then(|()| log.apply(hold, token, name)).is_ok() {
            let left = self.time.saturating_sub(at.since(since));
            if left.is_zero() {
                // The release begins here, and not when it is answered.
                let _ = log.write(hold, at, What::Let {});
                return;
            }
            sleep(left.min(LOOK.max(self.time / 20))).await;
            // An answer of the store wakes the work, and not only a timer.
            let _ = self.attempt.locks.inspect(name).await;
            at = now();
            what = What::Keep { until: at };
        }
    }

    /// Logs until when the store keeps the lock of a job that has ended well. Without faults, it is
    /// the minimum time; otherwise the store is asked for it.
    async fn log_promise(&self, at_least: Duration) -> Verdict {
        let Some((since, token)) = self.began.get() else { return Ok(()) };
        let (asked, most) = (now(), since.saturating_add(at_least));
        let until = if self.attempt.phase == Phase::Well {
            Some(most)
        } else {
            let shown = self.attempt.locks.inspect(self.attempt.name()).await;
            let holders = shown.map(|state| state.holders).unwrap_or_default();
            let of_it = holders.into_iter().find(|holder| holder.token == Some(*token));
            of_it.map(|holder| asked.saturating_add(holder.remaining).min(most))
        };
        until.map_or(Ok(()), |until| self.log.write(self.hold, now(), What::Promise { until }))
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

/// Returns the current time and the local deadline of the guard, which may be reported too early
/// but never too late. The deadline is `None` once the lock is lost.
pub(super) fn hold_times(guard: &Guard) -> (Instant, Option<Instant>) {
    // The order matters: if the process is stopped in between, the computed deadline is too early,
    // not too late.
    let at = now();
    let left = guard.remaining();
    (at, (!left.is_zero()).then(|| at.saturating_add(left)))
}
