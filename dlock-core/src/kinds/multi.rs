//! The multi-lock.
//!
//! Over one backend that can, all claims enter all queues at one point of the store's order, so
//! that any two multi-locks stand in the same order everywhere and can't deadlock. Otherwise the
//! locks are taken one after the other in one order for everybody: by name, then by store
//! (Havender, *Avoiding deadlock in multitasking systems*, 1968).

use std::{sync::Arc, time::Duration};

use super::{Base, Mutex, Takes};
use crate::{
    AcquireRequest, Acquired, Certainty, ClaimId, ConfigIssue, Error, ErrorKind, Guard, LockName,
    Mode, MultiLock,
    engine::{
        Engine,
        acquire::{Attempt, Wait},
    },
};

/// All of several locks or none: what [`Locks::multi`](crate::Locks::multi) makes.
#[derive(Clone, Debug)]
pub struct Multi {
    /// Sorted and without repetition, never empty.
    parts: Vec<Base>,
    names: Vec<LockName>,
}

impl Multi {
    pub(crate) fn new(mut parts: Vec<Base>) -> Result<Self, Error> {
        fn place(base: &Base) -> (&LockName, &str) {
            (&base.name, base.engine.backend.store())
        }
        parts.sort_by(|a, b| place(a).cmp(&place(b)));
        parts.dedup_by(|a, b| place(a) == place(b));
        if parts.is_empty() {
            return Err(Error::config(
                ConfigIssue::Empty,
                "a multi-lock has no name: give it at least one",
            ));
        }
        let mut names: Vec<_> = parts.iter().map(|base| base.name.clone()).collect();
        names.dedup();
        Ok(Self { parts, names })
    }

    /// All of these mutexes or none, of one backend or several. The wait is the first one's, in
    /// the order of names.
    ///
    /// # Errors
    /// `Config(Empty)` for none at all.
    pub fn across(locks: impl IntoIterator<Item = Mutex>) -> Result<Self, Error> {
        Self::new(locks.into_iter().map(|lock| lock.base).collect())
    }

    /// See [`MultiLock::names`].
    pub fn names(&self) -> &[LockName] {
        &self.names
    }

    /// See [`Lock::try_lock`](crate::Lock::try_lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.take(Wait::Try).await
    }

    /// See [`Lock::lock`](crate::Lock::lock).
    pub async fn lock(&self) -> Result<Guard, Error> {
        super::lock(self).await
    }

    /// See [`Lock::lock_timeout`](crate::Lock::lock_timeout).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        super::lock_timeout(self, wait).await
    }

    /// The engine, when all parts have the same.
    fn one_engine(&self) -> Option<&Arc<Engine>> {
        let first = &self.parts[0].engine;
        self.parts.iter().all(|base| Arc::ptr_eq(&base.engine, first)).then_some(first)
    }

    /// Takes one lock after the other, in the order that everybody keeps to.
    async fn take_in_order(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let mut guards = Vec::with_capacity(self.parts.len());
        for base in &self.parts {
            match base.take(Mode::Exclusive, wait).await? {
                Some(hold) => guards.push(Guard::of_hold(hold)),
                None => {
                    give_back(guards).await;
                    return Ok(None);
                }
            }
        }
        Ok(Some(Guard::many(&self.names[0], guards)))
    }

    /// Enters all queues at once; `None` when the store can't.
    async fn take_at_once(
        &self,
        engine: &Arc<Engine>,
        wait: Wait,
    ) -> Option<Result<Option<Guard>, Error>> {
        let mut claims = Vec::with_capacity(self.parts.len());
        for base in &self.parts {
            let request = AcquireRequest {
                name: base.name.clone(),
                claim: ClaimId::random(),
                mode: Mode::Exclusive,
                lease: base.options.lease(),
                queue: wait.queue(),
                tokens: 1,
            };
            claims.push((request, base.options));
        }
        let requests: Vec<_> = claims.iter().map(|(request, _)| request.clone()).collect();
        let sending = engine.backend.acquire_all(&requests)?;
        let mut entered = Entering { engine: Arc::clone(engine), sending: Some(sending), claims };
        Some(entered.all_granted(wait, &self.names[0]).await)
    }
}

/// Claims on their way into several queues.
struct Entering {
    engine: Arc<Engine>,
    sending: Option<crate::Answer<Vec<Acquired>>>,
    claims: Vec<(AcquireRequest, crate::LockOptions)>,
}

impl Entering {
    async fn all_granted(&mut self, wait: Wait, name: &LockName) -> Result<Option<Guard>, Error> {
        let Some(sending) = &mut self.sending else { return Ok(None) };
        let deadline = match wait {
            Wait::Until(deadline) => deadline,
            Wait::Try => None,
        };
        let answers = match deadline {
            None => sending.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, sending).await {
                Ok(answers) => answers,
                // Dropping this sees it through.
                Err(_) => return Err(super::timed_out(name)),
            },
        };
        self.sending = None;
        let claims = std::mem::take(&mut self.claims);
        // From here on each claim cleans up after itself.
        let attempts: Vec<_> = claims
            .into_iter()
            .map(|(request, options)| Attempt::queued(&self.engine, request, options))
            .collect();
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                if error.certainty() == Certainty::NotApplied {
                    attempts.into_iter().for_each(Attempt::forget);
                }
                return Err(error
                    .during("lock")
                    .with_lock(name)
                    .with_store(self.engine.backend.store()));
            }
        };
        let busy = answers.iter().any(|answer| matches!(answer, Acquired::Busy));
        let mut guards = Vec::with_capacity(attempts.len());
        let mut waiting = Vec::new();
        for (attempt, answer) in attempts.into_iter().zip(answers) {
            match answer {
                Acquired::Granted(grant) => guards.push(Guard::of_hold(attempt.settle(grant))),
                Acquired::Queued => waiting.push(attempt),
                Acquired::Busy => attempt.forget(),
            }
        }
        if busy {
            give_back(guards).await;
            return Ok(None);
        }
        // They wait side by side: a place in a queue is kept alive only while it is waited for.
        let waits = waiting.into_iter().map(|attempt| attempt.run(wait));
        for hold in futures_util::future::try_join_all(waits).await? {
            guards.extend(hold.map(Guard::of_hold));
        }
        guards.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(Some(Guard::many(name, guards)))
    }
}

impl Drop for Entering {
    /// Dropped while sending: the claims are given back once the store has them.
    fn drop(&mut self) {
        let Some(sending) = self.sending.take() else { return };
        let (engine, claims) = (Arc::clone(&self.engine), std::mem::take(&mut self.claims));
        self.engine.tasks.run(Box::pin(async move {
            let _ = sending.await;
            for (request, options) in claims {
                drop(Attempt::queued(&engine, request, options));
            }
        }));
    }
}

/// Releases before the caller is told that it was for nothing, so that trying leaves no trace.
async fn give_back(guards: Vec<Guard>) {
    for guard in guards {
        // The lease frees what can't be released.
        let _ = guard.release().await;
    }
}

impl Takes for Multi {
    fn base(&self) -> &Base {
        &self.parts[0]
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        loop {
            let taken = match self.one_engine() {
                Some(engine) if self.parts.len() > 1 => {
                    engine.check_open()?;
                    match self.take_at_once(engine, wait).await {
                        Some(taken) => taken,
                        None => self.take_in_order(wait).await,
                    }
                }
                _ => self.take_in_order(wait).await,
            };
            match taken {
                // One was lost while the others were waited for: start over, in all queues at
                // once, since joining one queue anew could deadlock.
                Ok(Some(guard)) if guard.check().is_err() => {}
                Err(error) if error.kind() == ErrorKind::NotHeld => {}
                taken => return taken,
            }
        }
    }
}

impl MultiLock for Multi {
    fn names(&self) -> &[LockName] {
        self.names()
    }
}
