//! The multi-lock.
//!
//! If one store supports it and grants in order of arrival, all claims enter all queues at one
//! point of the store's order. Then any two multi-locks have the same order in every queue and
//! can't wait for each other. On other stores the locks are acquired one by one, in the order of
//! names, which has the same effect (Havender, *Avoiding deadlock in multitasking systems*, 1968).
//!
//! Several stores have no common order: another program may know a store by another name. There, a
//! claim never waits while the multi-lock holds another part. The multi-lock waits for one store's
//! part and tries the others. If one of them is busy, it releases everything and waits for that one
//! first (Howard Hinnant's *smart and polite* algorithm of C++'s `std::lock`).

use std::{sync::Arc, time::Duration};

use super::{
    Base, Takes,
    entering::{Entering, give_back},
};
use crate::{
    AcquireRequest, Certainty, ConfigIssue, Error, ErrorKind, Fairness, Guard, LockName, Mode,
    MultiLock, Mutex,
    support::{
        labels::Kind,
        retry::{Trouble, Wait, backoff, explained, pause},
    },
};

/// All of several locks or none. Created by [`Locks::multi`](crate::Locks::multi).
#[derive(Clone, Debug)]
pub struct MultiMutex {
    /// One group for each store; never empty.
    groups: Vec<Group>,
    /// Sorted and without repetition.
    names: Vec<LockName>,
}

/// The locks of one store, sorted by name and without repetition, never empty.
#[derive(Clone, Debug)]
struct Group(Vec<Base>);

impl MultiMutex {
    pub(crate) fn new(mut parts: Vec<Base>) -> Result<Self, Error> {
        fn place(base: &Base) -> (&str, &LockName) {
            (base.engine().backend.store(), &base.name)
        }
        parts.sort_by(|a, b| place(a).cmp(&place(b)));
        parts.dedup_by(|a, b| place(a) == place(b));
        let mut names: Vec<_> = parts.iter().map(|base| base.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let mut groups: Vec<Group> = Vec::new();
        for mut base in parts {
            match groups.last_mut() {
                Some(Group(group)) if place(&group[0]).0 == place(&base).0 => {
                    // Two clients of one store could not enter its queues at once.
                    base.client = Arc::clone(&group[0].client);
                    group.push(base);
                }
                _ => groups.push(Group(vec![base])),
            }
        }
        if groups.is_empty() {
            return Err(Error::config(
                ConfigIssue::Empty,
                "a multi-lock has no name: give it at least one",
            ));
        }
        Ok(Self { groups, names })
    }

    /// Combines mutexes of one backend or several into a lock of all or none. `lock()` waits for
    /// the time that the options of the first mutex set, in the order of stores and names. Tokens
    /// of different stores are not comparable: send each resource the token of its own lock, not
    /// [`Guard::token`].
    ///
    /// Over several stores it is deadlock-free, but not first-come, first-served: under heavy
    /// contention for all of the locks, others may overtake it. Do not pass one lock twice under
    /// two names (with a prefix and without).
    ///
    /// # Errors
    /// `Config(Empty)` for an empty list.
    pub fn across(locks: impl IntoIterator<Item = Mutex>) -> Result<Self, Error> {
        Self::new(locks.into_iter().map(|lock| lock.base).collect())
    }

    /// The names, sorted and without repetition.
    pub fn names(&self) -> &[LockName] {
        &self.names
    }

    /// Takes the lock if it is free; returns `None` if it is busy. Waits for the store's answer,
    /// but not for a holder. Bind the guard to a variable: a temporary one is dropped at once.
    ///
    /// # Errors
    /// `Unavailable` if the store is unreachable. `Config` and `Unsupported` at once: see
    /// [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Wait::Try).await
    }

    /// Waits for the lock without a limit, unless
    /// [`LockOptions::with_wait`](crate::LockOptions::with_wait) sets one.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn lock(&self) -> Result<Guard, Error> {
        super::lock(self).await
    }

    /// Waits for the lock for `wait` at most. Zero is one attempt; `Duration::MAX` is no limit.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`Lock`](crate::Lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        super::lock_timeout(self, wait).await
    }

    /// Waits for the part of the store `first`, and tries the others. Returns the guards of the
    /// parts, or the store that was busy.
    async fn take_from(&self, first: usize, wait: Wait) -> Result<Round, Error> {
        let Some(guard) = self.groups[first].take(wait).await? else {
            return Ok(Err((first, None)));
        };
        let mut parts = guard.into_parts();
        for (i, group) in self.groups.iter().enumerate() {
            if i == first {
                continue;
            }
            match group.take(Wait::Try).await {
                Ok(Some(guard)) => parts.extend(guard.into_parts()),
                Ok(None) => {
                    give_back(parts, wait).await;
                    return Ok(Err((i, None)));
                }
                // The next round waits for this store first, with its retry budget.
                Err(error)
                    if error.kind() == ErrorKind::Unavailable && !matches!(wait, Wait::Try) =>
                {
                    give_back(parts, wait).await;
                    return Ok(Err((i, Some(error))));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Ok(Guard::many(parts)))
    }
}

/// The guard, or the index of a store: a busy one, or an unreachable one with its error.
type Round = Result<Guard, (usize, Option<Error>)>;

impl Takes for MultiMutex {
    fn base(&self) -> &Base {
        &self.groups[0].0[0]
    }

    fn kind(&self) -> Kind {
        Kind::Multi
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        if let [group] = &*self.groups {
            return group.take(wait).await;
        }
        let mut first = 0;
        for round in 0.. {
            let mut failed = None;
            match self.take_from(first, wait).await? {
                // One lock was lost while the others were acquired.
                Ok(guard) if guard.check().is_err() => {}
                Ok(guard) => return Ok(Some(guard)),
                Err(_) if matches!(wait, Wait::Try) => return Ok(None),
                Err((busy, error)) => (first, failed) = (busy, error),
            }
            if round > 0 {
                // The random pause prevents two multi-locks from giving way to each other for ever.
                let name = &self.names[0];
                let paused = pause(backoff(round.min(3)), wait.deadline(), name).await;
                paused.map_err(|ended| explained(ended, failed, name))?;
            }
        }
        Ok(None)
    }
}

/// The caller never had the guard, so the loss becomes an error that allows a retry.
fn late(lost: &Error, lease: Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "one of the locks was lost before the others were granted: try again, and check that \
             the store answers well within a lease ({lease:?})"
        ),
    )
    .with_certainty(Certainty::NotApplied)
    .during("acquire")
    .with_source(lost.clone())
}

impl Group {
    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let first = &self.0[0];
        let clock = first.engine().clock;
        let mut trouble = Trouble::default();
        loop {
            let (mut at_once, mut gave_up) = (false, false);
            let taken = match self.0.len() {
                1 => first.take(Mode::Exclusive, wait).await.map(|held| held.map(Guard::one)),
                _ => match self.take_at_once(wait, &mut gave_up).await {
                    Some(taken) => {
                        at_once = true;
                        taken
                    }
                    None => Box::pin(self.take_in_order(wait)).await,
                },
            };
            let error = match taken {
                // One lock was lost during the wait for the others. Start over in all queues at
                // once, since joining one queue again could deadlock.
                Ok(Some(guard)) => match guard.check() {
                    Ok(_) => return Ok(Some(guard)),
                    Err(lost) => lost,
                },
                Ok(None) => return Ok(None),
                Err(error) => error,
            };
            let (now, lease) = (clock.now(), first.options.lease());
            let again = match error.kind() {
                ErrorKind::Lost | ErrorKind::NotHeld => {
                    // The store has answered, so no outage counts. Retry for as long as the caller
                    // waits.
                    trouble.over();
                    true
                }
                // Claims that were sent one by one, or that waited, have used their retry budgets.
                ErrorKind::Unavailable => at_once && !gave_up,
                _ => false,
            };
            match trouble.pause(now, lease) {
                Some(next) if again && !matches!(wait, Wait::Try) => {
                    let paused = pause(next, wait.deadline(), &first.name).await;
                    let away = (error.kind() == ErrorKind::Unavailable).then_some(error);
                    paused.map_err(|ended| explained(ended, away, &first.name))?;
                }
                _ if error.kind() == ErrorKind::Lost => return Err(late(&error, lease)),
                _ => return Err(error),
            }
        }
    }

    /// Takes one lock after the other, in the order that all clients use. A try waits for one
    /// response timeout in total.
    async fn take_in_order(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let (engine, name) = (self.0[0].engine(), &self.0[0].name);
        match wait {
            Wait::Try => {
                let taking = self.take_each(wait);
                engine.answered(engine.answer_by(wait), wait, name, taking).await?
            }
            Wait::Until(_) => self.take_each(wait).await,
        }
    }

    async fn take_each(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let mut parts = Vec::with_capacity(self.0.len());
        for base in &self.0 {
            match base.take(Mode::Exclusive, wait).await? {
                Some(held) => parts.push(held),
                None => {
                    give_back(parts, wait).await;
                    return Ok(None);
                }
            }
        }
        Ok(Some(Guard::many(parts)))
    }

    /// Enters all queues at once; returns `None` if the store can't. Sets `gave_up` if a claim that
    /// waited has used its retry budget.
    async fn take_at_once(
        &self,
        wait: Wait,
        gave_up: &mut bool,
    ) -> Option<Result<Option<Guard>, Error>> {
        let engine = self.0[0].engine();
        let waits = !matches!(wait, Wait::Try);
        if waits && engine.backend.guarantees().fairness < Fairness::Fifo {
            // The same order in all queues helps only if the store grants in that order.
            return None;
        }
        if let Err(error) = engine.check_open() {
            return Some(Err(error));
        }
        let claim = |base: &Base| {
            let lease = engine.lease(*base.options)?;
            let request = AcquireRequest::new(base.name.clone(), Mode::Exclusive, lease)
                .with_queue(wait.queue());
            Ok((request, *base.options))
        };
        let claims: Vec<_> = match self.0.iter().map(claim).collect() {
            Ok(claims) => claims,
            Err(error) => return Some(Err(error)),
        };
        let requests: Vec<_> = claims.iter().map(|(request, _)| request.clone()).collect();
        let answer_by = engine.answer_by(wait);
        let sending = engine.backend.acquire_all(&requests)?;
        let mut entering = Entering::new(engine, claims, sending, answer_by);
        Some(entering.all_granted(wait, &self.0[0].name, gave_up).await)
    }
}

impl MultiLock for MultiMutex {
    fn names(&self) -> &[LockName] {
        self.names()
    }
}
