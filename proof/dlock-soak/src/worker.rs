//! One task of a child: it acquires, holds and releases locks at random, and logs it.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_core::{Ended, FencingToken, Guard, Instant, LockOptions, Locks, Mode, Released, Renew};
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
    attempt::{Attempt, LONGEST_WAIT, Wait, kind, tokens},
    line::{self, Phase, What},
    log::{Log, hold_times},
    plan::{Kind, Target},
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
        Self { task, rng, locks, log, targets, phases, lease, cancels }
    }

    pub(super) fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
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
        let time = match (attempt.phase, self.rng.random_range(0..20)) {
            // This time may exceed the lease, unless the lease is renewed.
            (Phase::Storm, 0) => self.lease.mul_f64(self.rng.random_range(0.8..2.0)),
            (Phase::Storm, _) => Duration::from_micros(self.rng.random_range(0..20_000)),
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
