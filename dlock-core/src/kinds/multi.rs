//! The multi-lock.
//!
//! The locks of one store are acquired shard by shard, in the order of the shards' numbers. If the
//! store supports it and grants in order of arrival, all claims of a shard enter its queues at one
//! point of the store's order. On other stores the locks are acquired one by one, in the order of
//! shards and names.
//!
//! # No deadlocks
//!
//! A *step* is a shard if the store takes several names at once and grants in order of arrival, and
//! otherwise a name. All steps of a store have one order, and a multi-lock waits in a step only
//! while it holds locks of earlier steps (Havender, *Avoiding deadlock in multitasking systems*,
//! 1968).
//!
//! Suppose that multi-locks wait for each other in a circle. One that waits in a step is blocked by
//! one that holds a lock of this step or is ahead in one of its queues, and so waits in the same
//! step or in a later one. In a circle all of them wait in the same step. There, all claims of a
//! multi-lock have entered the queues at one point, so the earliest one is ahead in every queue,
//! and none of the others blocks it.
//!
//! This needs the same steps in every client of the store. If one client entered two queues at
//! once and another one after the other, the first could hold the second lock while it waits for
//! the first one. So [`Backend::acquire_all`](crate::Backend::acquire_all) must not depend on the
//! settings of a client, and a shard is never split.
//!
//! # Several stores
//!
//! The stores are taken one after the other, in the order of
//! [`Backend::store`](crate::Backend::store), and the multi-lock waits in the queues of one store
//! while it holds the locks of earlier ones. So the steps of all stores have one order, the queue of
//! each step is fair, and no multi-lock is overtaken for ever.
//!
//! The order is the same only for programs that know each store by the same address, and that have
//! one client for each. Others can wait for each other in a circle. So a multi-lock that holds locks
//! of earlier stores waits for a limited time. After that it releases all its locks, and starts over
//! with twice the limit. The limits are random, so in a circle one multi-lock starts over first, and
//! the next one gets its locks. Without a circle, the limit soon exceeds the wait in the queue.

use std::{collections::BTreeMap, error::Error as _, sync::Arc, time::Duration};

use super::{Base, Client, Takes};
use crate::{
    AcquireRequest, Acquired, Answer, Backoff, Certainty, ConfigIssue, Error, ErrorKind, Fairness,
    Guard, LockName, LockOptions, Mode, MultiLock, Mutex,
    acquire::Attempt,
    engine::{Engine, hold_ref::HoldRef},
    support::{
        labels::Kind,
        retry::{RetryBudget, Wait, explained, pause},
        tasks::Ticket,
    },
    sync::time::{self, Instant as Timer},
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
    /// One group for each client of a store, in the order in which they are taken; never empty.
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

/// The first limit of the wait for a later store, at most. It is short, since in a circle no
/// multi-lock gets its locks meanwhile.
const FIRST_LIMIT: Duration = Duration::from_millis(250);

/// The longest limit. It is long, since a multi-lock that starts over loses its place in the queue.
const LONGEST_LIMIT: Duration = Duration::from_secs(3600);

/// The longest limit over two clients of one store. They can't enter its queues at one point, so they
/// can be in a circle with a multi-lock within the store, which waits without a limit.
const LONGEST_OF_TWINS: Duration = Duration::from_secs(1);

impl MultiMutex {
    pub(crate) fn new(parts: Vec<Base>) -> Result<Self, Error> {
        // Each lock is acquired by its own client, with the client's settings. Clients over one
        // backend have the same, and one of them can enter all queues of a step at once.
        let mut clients: Vec<Arc<Client>> = Vec::new();
        let mut placed = Vec::with_capacity(parts.len());
        for mut base in parts {
            let backend = &base.engine().backend;
            let shard = backend.shard(&base.name);
            match clients.iter().find(|client| Arc::ptr_eq(&client.engine.backend, backend)) {
                Some(client) => base.client = Arc::clone(client),
                None => clients.push(Arc::clone(&base.client)),
            }
            placed.push((shard, base));
        }
        fn sort_key((shard, base): &(u32, Base)) -> (&str, u32, &LockName) {
            (base.engine().backend.store(), *shard, &base.name)
        }
        // A lock that two clients of one store have is acquired by the first of them: the sort is
        // stable.
        placed.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        placed.dedup_by(|a, b| sort_key(a) == sort_key(b));
        let mut names: Vec<_> = placed.iter().map(|(_, base)| base.name.clone()).collect();
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
        let mut groups: Vec<BTreeMap<u32, Vec<Base>>> = Vec::new();
        for (shard, base) in placed {
            let is_of = |other: &Base| Arc::ptr_eq(&other.client, &base.client);
            let known = groups.iter().position(|group| group.values().flatten().any(is_of));
            let group = known.unwrap_or_else(|| {
                groups.push(BTreeMap::new());
                groups.len() - 1
            });
            groups[group].entry(shard).or_default().push(base);
        }
        let group = |shards: BTreeMap<_, _>| Group(shards.into_values().map(Shard).collect());
        Ok(Self { groups: groups.into_iter().map(group).collect(), names })
    }

    /// Combines mutexes of one backend or several into a lock of all or none. `lock()` waits for
    /// the time that the options of the first mutex set, in the order of stores, shards and names.
    /// Tokens of different stores are not comparable: send each resource the token of its own lock,
    /// not [`Guard::token`].
    ///
    /// It waits in the queues of one store while it holds the locks of earlier ones. All programs
    /// should know each store by the same address, since the addresses determine the order. If they
    /// do not, two multi-locks can wait for each other, until one of them releases all its locks and
    /// starts over: after 0.1 to 0.25 s at first, and after twice that time at each further attempt.
    ///
    /// Each lock is acquired by the client of its mutex, with the client's settings. Two connections
    /// to one store count as two stores, and multi-locks within this store may overtake: use one
    /// [`Locks`](crate::Locks) for each store.
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

    acquiring_methods!(waits);

    /// Takes the part of each store in turn. It waits for the first store as long as the caller, and
    /// for each of the others no longer than `limit`.
    async fn take_each_store(&self, wait: Wait, limit: Duration) -> Result<Option<Guard>, Error> {
        let mut parts = Vec::with_capacity(self.names.len());
        for group in &self.groups {
            let limited = if parts.is_empty() { wait } else { wait.at_most(limit) };
            match group.take(limited).await {
                Ok(Some(guard)) => parts.extend(guard.into_parts()),
                ended => {
                    release_parts(parts, wait).await;
                    let name = &group.base().name;
                    return ended.map_err(|error| error.at("acquire", name, group.store()));
                }
            }
        }
        Ok(Some(Guard::many(parts)))
    }
}

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
        let first = self.base();
        let (engine, lease) = (first.engine(), first.options.lease());
        // The groups are in the order of stores.
        let has_twins = self.groups.windows(2).any(|pair| pair[0].store() == pair[1].store());
        let longest = if has_twins { LONGEST_OF_TWINS } else { LONGEST_LIMIT };
        let mut limits = Backoff::between(FIRST_LIMIT, longest);
        // In a store without a queue, a pause lets others find the locks free.
        let mut pauses = Backoff::between(Duration::from_millis(200), Duration::from_millis(400));
        let mut outage = RetryBudget::default();
        loop {
            let timed_out = match self.take_each_store(wait, limits.pause()).await {
                Ok(Some(guard)) => match guard.check() {
                    Ok(_) => return Ok(Some(guard)),
                    // One lock was lost while the others were acquired.
                    Err(lost) if matches!(wait, Wait::Try) => {
                        let store = self.groups[0].store();
                        return Err(late(&lost, lease).at("acquire", &first.name, store));
                    }
                    Err(_) => None,
                },
                Err(error) if error.kind() == ErrorKind::Timeout && !wait.is_over() => Some(error),
                ended => return ended,
            };
            match timed_out.as_ref().and_then(failure_behind) {
                None => outage.over(),
                // The attempts of a later store are cut short, so its outage is measured here.
                Some(failure) if outage.pause(engine.clock.now(), lease).is_none() => {
                    return Err(failure);
                }
                Some(_) => {}
            }
            let paused = pause(pauses.pause(), wait.deadline(), &first.name).await;
            paused.map_err(|ended| timed_out.unwrap_or(ended))?;
        }
    }
}

/// Returns the failure of the store with which a wait has ended, if the store failed.
fn failure_behind(ended: &Error) -> Option<Error> {
    let failure = ended.source()?.downcast_ref::<Error>()?.clone();
    Some(failure.at("acquire", ended.lock()?, ended.store()?))
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
    .with_source(lost.clone())
}

impl Group {
    /// Returns the first lock.
    fn base(&self) -> &Base {
        &self.0[0].0[0]
    }

    fn store(&self) -> &str {
        self.base().engine().backend.store()
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
            let waits = !matches!(wait, Wait::Try);
            // The store has answered, so no outage counts. Retry for as long as the caller waits.
            if waits && matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld) {
                budget.over();
            }
            let again = match error.kind() {
                // The claims have ended in the store, and others start over, even for one try.
                ErrorKind::NotHeld => true,
                ErrorKind::Lost => waits,
                ErrorKind::Unavailable => waits && retries,
                _ => false,
            };
            // A try ends after the time that an answer may take.
            let store = &first.engine().backend;
            let limit = if waits { lease } else { lease.min(store.response_timeout()) };
            match budget.pause(now, limit) {
                Some(next) if again => {
                    let paused = pause(next, wait.deadline(), &first.name).await;
                    let failure = (error.kind() == ErrorKind::Unavailable).then_some(error);
                    paused.map_err(|ended| explained(ended, failure, &first.name))?;
                }
                _ if matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld) => {
                    return Err(late(&error, lease).at("acquire", &first.name, store.store()));
                }
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

/// Claims that are being sent to several queues.
struct MultiAcquire {
    engine: Arc<Engine>,
    sending: Option<Answer<Vec<Acquired>>>,
    /// The time limit for the answer.
    answer_by: Option<Timer>,
    claims: Vec<(AcquireRequest, LockOptions)>,
    /// Shutdown waits for it.
    _ticket: Ticket,
}

impl MultiAcquire {
    pub(super) fn new(
        engine: &Arc<Engine>,
        claims: Vec<(AcquireRequest, LockOptions)>,
        sending: Answer<Vec<Acquired>>,
        answer_by: Option<Timer>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            sending: Some(sending),
            answer_by,
            claims,
            _ticket: engine.tasks.ticket(),
        }
    }

    async fn all_granted(
        &mut self,
        wait: Wait,
        name: &LockName,
        gave_up: &mut bool,
    ) -> Result<Option<Guard>, Error> {
        let Some(sending) = &mut self.sending else { return Ok(None) };
        // If this future is dropped here, `Drop` below waits for the answer in the background.
        let answers = self.engine.acquire_answered(self.answer_by, wait, name, sending).await?;
        let store = self.engine.backend.store();
        let answers = answers.map_err(|error| error.during("acquire").with_store(store));
        self.engine.failure.record(&answers, None);
        self.sending = None;
        let claims = std::mem::take(&mut self.claims);
        // From here on each claim cleans up its own state.
        let attempts: Vec<_> = claims
            .into_iter()
            .map(|(request, options)| Attempt::queued(&self.engine, request, options))
            .collect();
        self.engine.check_open()?;
        let answers = match answers {
            Ok(answers) if answers.len() == attempts.len() => answers,
            Ok(answers) => {
                let text = format!(
                    "the store sent {} answers to {} claims: report this to the authors of the \
                     backend",
                    answers.len(),
                    attempts.len()
                );
                return Err(Error::new(ErrorKind::Protocol, text).at("acquire", name, store));
            }
            Err(error) => {
                if error.certainty() == Certainty::NotApplied {
                    attempts.into_iter().for_each(Attempt::forget);
                }
                return Err(error.with_lock(name));
            }
        };
        let busy = answers.contains(&Acquired::Busy);
        let mut parts = Vec::with_capacity(attempts.len());
        let mut waiting = Vec::new();
        for (mut attempt, answer) in attempts.into_iter().zip(answers) {
            match answer {
                Acquired::Granted(grant) => parts.push(attempt.settle(grant)),
                Acquired::Queued => waiting.push(attempt),
                Acquired::Busy => attempt.forget(),
            }
        }
        if busy {
            release_parts(parts, wait).await;
            return Ok(None);
        }
        // The claims wait concurrently, since a place in a queue expires if its claim does not
        // wait.
        let waits = waiting.iter_mut().map(|attempt| async {
            let taken = attempt.run(wait).await;
            taken.map_err(|error| attempt.explain(error))
        });
        let taken = futures_util::future::try_join_all(waits).await;
        *gave_up = taken.is_err() && waiting.iter().any(Attempt::gave_up);
        parts.extend(taken?.into_iter().flatten());
        Ok(Some(Guard::many(parts)))
    }
}

impl Drop for MultiAcquire {
    /// If it is dropped while the request is being sent, the claims are cancelled after the answer.
    /// A cancellation that overtook the request would leave the claims in their queues. A request
    /// that was not sent is given up.
    fn drop(&mut self) {
        let Some(mut sending) = self.sending.take() else { return };
        if sending.give_up() {
            return;
        }
        let (engine, claims) = (Arc::clone(&self.engine), std::mem::take(&mut self.claims));
        self.engine.tasks.run(async move {
            let _ = sending.await;
            for (request, options) in claims {
                drop(Attempt::queued(&engine, request, options));
            }
        });
    }
}

/// Releases the parts of a failed attempt before the caller gets the result, so that a try leaves
/// no trace. Slow releases continue in the background.
async fn release_parts(parts: Vec<HoldRef>, wait: Wait) {
    let all = futures_util::future::join_all(parts.into_iter().map(HoldRef::release));
    let soon = Timer::now() + Duration::from_secs(1);
    let until = wait.deadline().map_or(soon, |deadline| deadline.min(soon));
    // The lease frees a lock that can't be released.
    let _ = time::timeout_at(until, all).await;
}

/// The locks of one shard, sorted by name and without repetition, never empty.
#[derive(Clone, Debug)]
struct Shard(Vec<Base>);

/// Takes one step after the other, in the order that all clients use. A try waits for one response
/// timeout in total.
async fn take_in_order(
    steps: &[impl AcquireStep],
    wait: Wait,
    retries: &mut bool,
) -> Result<Option<Guard>, Error> {
    let first = steps[0].base();
    match wait {
        Wait::Try => {
            let engine = first.engine();
            let taking = take_each(steps, wait, retries);
            engine.answered(engine.answer_by(wait), wait, &first.name, taking).await?
        }
        Wait::Until(_) => take_each(steps, wait, retries).await,
    }
}

async fn take_each(
    steps: &[impl AcquireStep],
    wait: Wait,
    retries: &mut bool,
) -> Result<Option<Guard>, Error> {
    let mut parts = Vec::with_capacity(steps.len());
    for step in steps {
        match step.take(wait, retries).await? {
            Some(guard) => parts.extend(guard.into_parts()),
            None => {
                release_parts(parts, wait).await;
                return Ok(None);
            }
        }
    }
    Ok(Some(Guard::many(parts)))
}

/// Locks that are acquired before those of the next step.
trait AcquireStep: Sync {
    /// Returns the first lock.
    fn base(&self) -> &Base;

    /// Takes all locks of the step. `retries` is set to whether the caller should retry if the
    /// store is unreachable: claims that wait retry on their own, and then have used their retry
    /// budgets.
    fn take(
        &self,
        wait: Wait,
        retries: &mut bool,
    ) -> impl Future<Output = Result<Option<Guard>, Error>> + Send;
}

/// One lock of a store that acquires one by one.
impl AcquireStep for Base {
    fn base(&self) -> &Base {
        self
    }

    async fn take(&self, wait: Wait, retries: &mut bool) -> Result<Option<Guard>, Error> {
        *retries = false;
        Ok(Self::take(self, Mode::Exclusive, wait).await?.map(Guard::one))
    }
}

impl AcquireStep for Shard {
    fn base(&self) -> &Base {
        &self.0[0]
    }

    async fn take(&self, wait: Wait, retries: &mut bool) -> Result<Option<Guard>, Error> {
        if let [only] = &*self.0 {
            return AcquireStep::take(only, wait, retries).await;
        }
        let mut gave_up = false;
        match self.take_at_once(wait, &mut gave_up).await {
            Some(taken) => {
                *retries = !gave_up;
                taken
            }
            None => Box::pin(take_in_order(&self.0, wait, retries)).await,
        }
    }
}

impl Shard {
    /// Enters all queues at once; returns `None` if the store can't. Sets `gave_up` if a claim that
    /// waited has used its retry budget.
    async fn take_at_once(
        &self,
        wait: Wait,
        gave_up: &mut bool,
    ) -> Option<Result<Option<Guard>, Error>> {
        #[cfg(dlock_sim)]
        if crate::sim::has_mistake("names-one-by-one") {
            return None;
        }
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
        let mut claims = MultiAcquire::new(engine, claims, sending, answer_by);
        Some(claims.all_granted(wait, &self.0[0].name, gave_up).await)
    }
}
