//! One task of a child: it takes, holds and lets go at random, and writes it down.

use std::{pin::pin, sync::Arc, time::Duration};

use dlock_core::{
    Certainty, Ended, Error, ErrorKind, Guard, Lock, LockOptions, Locks, Mode, Released, Renew,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    line::{self, Phase, What},
    log::{Log, believed},
    plan::{Kind, Target},
};
use crate::{Stop, Verdict, context::now, polls};

/// How long anybody may wait once all is well: a backstop on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);

/// Before the store is asked again that was out of reach.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a holder looks whether it still holds.
const LOOK: Duration = Duration::from_millis(10);

/// A task that takes locks.
pub(super) struct Worker {
    task: usize,
    rng: StdRng,
    locks: Locks,
    log: Arc<Log>,
    targets: Arc<[Target]>,
    phases: watch::Receiver<Phase>,
    lease: Duration,
    cancels: u32,
}

/// How to take a lock once.
struct Attempt {
    target: Target,
    mode: Mode,
    locks: Locks,
    wait: Wait,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Wait {
    Try,
    For(Duration),
    Ever,
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
        Self { task, rng, locks, log, targets, phases, lease, cancels: 0 }
    }

    pub(super) fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    pub(super) fn with_cancels(self, cancels: u32) -> Self {
        Self { cancels, ..self }
    }

    /// Works until the end.
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
            holds.push(self.log.ask(self.task, phase, attempt.mode, name)?);
        }
        let cancel = phase == Phase::Storm && self.rng.random_range(0..100) < self.cancels;
        let answer = if cancel {
            self.until_cancelled(attempt.take()).await
        } else {
            Some(attempt.insist().await)
        };
        let (how, text) = match answer {
            Some(Ok(Some(guard))) => return self.hold(guard, &attempt, &holds).await,
            Some(Ok(None)) => (line::BUSY.to_owned(), String::new()),
            Some(Err(error)) => (kind(&error), error.to_string()),
            None => (line::CANCELLED.to_owned(), String::new()),
        };
        let at = now();
        for &hold in &holds {
            let (how, text) = (how.clone(), text.clone());
            self.log.write(hold, What::Not { at, how, text })?;
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
        // Few different options: those who share them hand over to each other.
        let renew = if rng.random_bool(0.4) { Renew::Auto } else { Renew::Never };
        let options = LockOptions::new().with_lease(self.lease).with_renew(renew);
        let mut locks = self.locks.with_options(options)?;
        if rng.random_bool(0.4) {
            locks = locks.without_handoff();
        }
        let wait = match (phase, rng.random_range(0..10)) {
            (Phase::Calm | Phase::Well, _) => Wait::For(PATIENCE),
            (_, 0) => Wait::Try,
            (_, 1) => Wait::Ever,
            _ => Wait::For(Duration::from_millis(rng.random_range(5..1500))),
        };
        Ok(Attempt { target, mode, locks, wait, phase })
    }

    /// Drops it after a random number of polls or a random time.
    async fn until_cancelled<F: Future>(&mut self, taking: F) -> Option<F::Output> {
        if self.rng.random_bool(0.5) {
            let polls = self.rng.random_range(0..8);
            return match polls::drop_after(polls, taking).await {
                polls::Ended::Completed(answer) => Some(answer),
                polls::Ended::Dropped | polls::Ended::Waiting => None,
            };
        }
        let patience = Duration::from_micros(self.rng.random_range(0..40_000));
        timeout(patience, taking).await.ok()
    }

    async fn hold(&mut self, mut guard: Guard, attempt: &Attempt, holds: &[u64]) -> Verdict {
        let (at, until) = believed(&guard);
        for (&hold, token) in holds.iter().zip(tokens(&guard, attempt)?) {
            self.log.write(hold, What::Got { at, token, until: until.unwrap_or(at) })?;
        }
        if until.is_some() {
            self.stay(&mut guard, attempt, holds, at).await?;
        }
        let (at, _) = believed(&guard);
        self.write_all(holds, &What::Let { at })?;
        match self.rng.random_range(0..10) {
            0..3 => drop(guard),
            3 => {
                // Begun, and left to go on by itself.
                let polls = self.rng.random_range(0..3);
                let _ = polls::drop_after(polls, guard.release()).await;
            }
            _ => {
                let how = match guard.release().await {
                    Ok(Released::Released) => line::RELEASED,
                    Ok(_) => line::GONE,
                    Err(_) => line::UNKNOWN,
                };
                self.write_all(holds, &What::Left { at: now(), how: how.to_owned() })?;
            }
        }
        Ok(())
    }

    /// Holds on for a while, and writes down how long it is to be believed.
    async fn stay(
        &mut self,
        guard: &mut Guard,
        attempt: &Attempt,
        holds: &[u64],
        since: dlock_core::Instant,
    ) -> Verdict {
        let time = match (attempt.phase, self.rng.random_range(0..20)) {
            // Past the lease, unless it is renewed.
            (Phase::Storm, 0) => self.lease.mul_f64(self.rng.random_range(0.8..2.0)),
            (Phase::Storm, _) => Duration::from_micros(self.rng.random_range(0..20_000)),
            _ => Duration::from_micros(self.rng.random_range(0..4_000)),
        };
        let writer = attempt.target.kind == Kind::ReadWrite && attempt.mode == Mode::Exclusive;
        if writer && self.rng.random_bool(0.3) {
            self.write_all(holds, &What::Share { at: now() })?;
            // Whatever comes of it, the guard is a reader's from now on, or lost.
            let _ = guard.downgrade().await;
        }
        let end = since.saturating_add(time);
        loop {
            let left = end.since(now());
            if left.is_zero() {
                return Ok(());
            }
            let mut lost = pin!(guard.lost());
            let ended = timeout(left.min(LOOK), &mut lost).await;
            let (at, until) = believed(guard);
            match (until, ended) {
                (Some(until), _) => self.write_all(holds, &What::Keep { until })?,
                (None, ended) => {
                    let how = match ended {
                        Ok(Ended::Revoked) => line::REVOKED,
                        Ok(_) => line::EXPIRED,
                        Err(_) => match lost.await {
                            Ended::Revoked => line::REVOKED,
                            _ => line::EXPIRED,
                        },
                    };
                    return self.write_all(holds, &What::Lost { at, how: how.to_owned() });
                }
            }
        }
    }

    fn write_all(&self, holds: &[u64], what: &What) -> Verdict {
        holds.iter().try_for_each(|&hold| self.log.write(hold, what.clone()))
    }
}

impl Attempt {
    /// Takes it; in peace, also from a store that takes its time to be well again.
    async fn insist(&self) -> Result<Option<Guard>, Error> {
        let end = now().saturating_add(PATIENCE);
        loop {
            match self.take().await {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && self.phase != Phase::Storm
                        && now() < end =>
                {
                    sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn take(&self) -> Result<Option<Guard>, Error> {
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

/// The token of each name, in the order of the attempt's names.
fn tokens(guard: &Guard, attempt: &Attempt) -> Result<Vec<dlock_core::FencingToken>, Stop> {
    let tokens = guard.tokens();
    let of = |name: &String| {
        let found = tokens.iter().find(|(of, _)| of.as_str() == name);
        found.map(|(_, token)| *token).ok_or_else(|| Stop::failed("a guard without a token"))
    };
    attempt.target.names.iter().map(of).collect()
}

fn kind(error: &Error) -> String {
    match (error.kind(), error.certainty()) {
        (ErrorKind::Unavailable, Certainty::NotApplied) => "refused".to_owned(),
        // Without what stands in brackets, which may have spaces.
        (kind, _) => format!("{kind:?}").replace(' ', ""),
    }
}
