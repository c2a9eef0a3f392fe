//! The multi-lock.
//!
//! The locks of one store are acquired shard by shard, in the order of the shards' numbers. If the
//! store supports it and grants in order of arrival, all claims of a shard enter its queues at one
//! point of the store's order. On other stores the locks are acquired one by one, in the order of
//! shards and names.
//!
//! [`steps`](super::steps) shows why multi-locks of one store do not deadlock.
//!
//! # Several stores
//!
//! Several stores have no common order: another program may know a store by another name. There, a
//! claim never waits while the multi-lock holds another part. The multi-lock waits for one store's
//! part and tries the others. If one of them is busy, it releases everything and waits for that one
//! first (Howard Hinnant's *smart and polite* algorithm of C++'s `std::lock`).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Base, Client, Takes,
    multi_acquire::release_parts,
    steps::{AcquireStep as _, Shard, take_in_order},
};
use crate::{
    Certainty, ConfigIssue, Error, ErrorKind, Guard, LockName, MultiLock, Mutex,
    support::{
        labels::Kind,
        retry::{RetryBudget, Wait, backoff, explained, pause},
    },
};

/// All of several locks or none. Created by [`Locks::multi`](crate::Locks::multi).
///
/// Multi-locks do not deadlock with each other, nor with single locks. Locks that a program nests
/// by hand can deadlock, also with a multi-lock: a task that holds `b` and waits for `a`, beside a
/// multi-lock over both. Take all of them with one multi-lock.
///
/// A multi-lock has at most 1,000 locks, and on some stores fewer.
#[derive(Clone, Debug)]
pub struct MultiMutex {
    /// One group for each store and client; never empty.
    groups: Vec<Group>,
    /// Sorted and without repetition.
    names: Vec<LockName>,
}

/// The locks of one client of one store, by shard; never empty.
#[derive(Clone, Debug)]
struct Group(Vec<Shard>);

/// The largest number of names. A store is busy with all names of a shard at a time: a script that
/// takes 1,000 locks delays the other clients of a Redis server for about 30 ms.
const MOST_NAMES: usize = 1000;

impl MultiMutex {
    pub(crate) fn new(parts: Vec<Base>) -> Result<Self, Error> {
        // Each lock is acquired by its own client, with the client's settings.
        let mut clients: Vec<Arc<Client>> = Vec::new();
        let mut placed = Vec::with_capacity(parts.len());
        for base in parts {
            let known = clients.iter().position(|client| Arc::ptr_eq(client, &base.client));
            let client = known.unwrap_or_else(|| {
                clients.push(Arc::clone(&base.client));
                clients.len() - 1
            });
            let shard = base.engine().backend.shard(&base.name);
            placed.push((client, shard, base));
        }
        fn lock(base: &Base) -> (&str, &LockName) {
            (base.engine().backend.store(), &base.name)
        }
        // A lock that two clients of one store have is acquired by the first of them.
        placed.sort_by(|a, b| lock(&a.2).cmp(&lock(&b.2)).then(a.0.cmp(&b.0)));
        placed.dedup_by(|a, b| lock(&a.2) == lock(&b.2));
        let mut names: Vec<_> = placed.iter().map(|(.., base)| base.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Err(Error::config(
                ConfigIssue::Empty,
                "a multi-lock has no name: give it at least one",
            ));
        }
        if placed.len() > MOST_NAMES {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a multi-lock of {} locks is too large: use at most {MOST_NAMES}, or one lock \
                     that stands for many",
                    placed.len()
                ),
            ));
        }
        let mut groups = BTreeMap::<_, BTreeMap<u32, Vec<Base>>>::new();
        for (client, shard, base) in placed {
            let store = base.engine().backend.store().to_owned();
            groups.entry((store, client)).or_default().entry(shard).or_default().push(base);
        }
        let group = |shards: BTreeMap<_, _>| Group(shards.into_values().map(Shard).collect());
        Ok(Self { groups: groups.into_values().map(group).collect(), names })
    }

    /// Combines mutexes of one backend or several into a lock of all or none. `lock()` waits for
    /// the time that the options of the first mutex set, in the order of stores, shards and names.
    /// Tokens of different stores are not comparable: send each resource the token of its own lock,
    /// not [`Guard::token`].
    ///
    /// Over several stores, or several clients of one store, it is deadlock-free, but not
    /// first-come, first-served: under heavy contention for all of the locks, others may overtake
    /// it. Each lock is acquired by the client of its mutex, with the client's settings.
    ///
    /// Do not pass one lock twice: under two names (with a prefix and without), or by clients that
    /// know its store by two addresses. Such a multi-lock waits for itself until its time limit.
    ///
    /// # Errors
    /// `Config(Empty)` for an empty list; `Unsupported` for more than 1,000 locks.
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
                    release_parts(parts, wait).await;
                    return Ok(Err((i, None)));
                }
                // The next round waits for this store first, with its retry budget.
                Err(error)
                    if error.kind() == ErrorKind::Unavailable && !matches!(wait, Wait::Try) =>
                {
                    release_parts(parts, wait).await;
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
        self.groups[0].base()
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
    /// Returns the first lock.
    fn base(&self) -> &Base {
        &self.0[0].0[0]
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let first = self.base();
        let clock = first.engine().clock;
        let mut budget = RetryBudget::default();
        loop {
            let mut retries = false;
            let taken = match &*self.0 {
                [shard] => shard.take(wait, &mut retries).await,
                shards => Box::pin(take_in_order(shards, wait, &mut retries)).await,
            };
            let error = match taken {
                // One lock was lost during the wait for the others. Start over in all queues,
                // since joining one queue again could deadlock.
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
                    budget.over();
                    true
                }
                ErrorKind::Unavailable => retries,
                _ => false,
            };
            match budget.pause(now, lease) {
                Some(next) if again && !matches!(wait, Wait::Try) => {
                    let paused = pause(next, wait.deadline(), &first.name).await;
                    let failure = (error.kind() == ErrorKind::Unavailable).then_some(error);
                    paused.map_err(|ended| explained(ended, failure, &first.name))?;
                }
                _ if error.kind() == ErrorKind::Lost => return Err(late(&error, lease)),
                _ => return Err(error),
            }
        }
    }
}

impl MultiLock for MultiMutex {
    fn names(&self) -> &[LockName] {
        self.names()
    }
}
