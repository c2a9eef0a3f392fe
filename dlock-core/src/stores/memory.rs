//! The memory backend: the [lock machine](crate::machine) in place.
//!
//! It is the reference for the other stores, the store of unit tests, and a real store for programs
//! of one process. Names are spread over shards, each with the machines of its names and the
//! waiting tasks. Records of free names are removed when a shard has grown to twice the number that
//! was in use. Only the largest of their tokens remains, as `forgotten` of the shard, so that
//! tokens grow across removal.
//!
//! # Concurrency
//!
//! All state of a shard, records and waiting tasks, changes under its mutex. An operation is
//! applied, and the tasks that it grants are woken, under one lock. A waiting task registers under
//! the same lock under which it saw that it is queued. So no grant can fall between the check and
//! the wait. Store time is also read under the lock, so that it never goes back between two
//! operations of a shard.

use std::{fmt, hash::BuildHasher, sync::Arc, time::Duration};

use async_trait::async_trait;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable, hash_table::Entry};

use crate::{
    AcquireRequest, Acquired, Admin, Answer, Backend, BackendUrl, Certainty, Claim, ClaimId, Clock,
    ConfigIssue, Connecting, DynBackend, Error, ErrorKind, Exclusion, Factory, Fairness, Fencing,
    FencingToken, Finding, Grant, Guarantees, Instant, LockName, LockState, Mode, Notes,
    OrphanRelease, Permits, Released, Renewal, Renewed, Scope, WakeUp,
    machine::{Granted, Machine, Micros, Op, Outcome, conflict, spent},
    sync::{Mutex, oneshot},
};

const SHARDS: usize = 16;
const SWEEP_AT_LEAST: usize = 64;
/// The largest token of a record that may be removed. A larger token, as `forgotten` of the shard,
/// would leave few or no tokens to other names.
const LARGEST_FORGOTTEN: u64 = FencingToken::MAX.get() / 2;

/// A store of locks in this process's memory.
///
/// Every [`Locks`](crate::Locks) over one `Memory` is a separate client, as if it were in another
/// process.
pub struct Memory {
    store: String,
    clock: Clock,
    hasher: DefaultHashBuilder,
    shards: [Mutex<MemoryShard>; SHARDS],
}

#[derive(Default)]
struct MemoryShard {
    names: Names,
    waiting: WaitingTasks,
    /// Kept between operations, so that an uncontended lock does not allocate.
    grants: Vec<Granted>,
}

#[derive(Default)]
struct Names {
    records: HashTable<Record>,
    /// The largest token that a name without a record may already have had.
    forgotten: u64,
    sweep_at: usize,
}

struct Record {
    name: LockName,
    machine: Machine,
}

/// The tasks that wait for a grant. They have a separate map, since most names have no waiter.
/// Removing the sender wakes its task.
#[derive(Default)]
struct WaitingTasks(HashMap<ClaimId, oneshot::Sender<()>>);

impl Memory {
    /// The factory of `memory:`, which has no options of its own. Each connection is a separate
    /// store.
    pub const FACTORY: Factory = Factory::new("memory", &["memory"], &[], connect);

    /// Creates an empty store. Its leases expire by tokio's clock, so they also expire under paused
    /// time (`tokio::time::pause`).
    pub fn new() -> Arc<Self> {
        Self::with_clock(Clock::of_process())
    }

    /// Creates an empty store whose leases expire by this clock. [`Clock::tokio`] starts at zero,
    /// so that the tokens of a test under `tokio::time::pause` are the same in each run.
    pub fn with_clock(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            store: format!("memory:{:08x}", rand::random::<u32>()),
            clock,
            hasher: DefaultHashBuilder::default(),
            shards: Default::default(),
        })
    }

    /// Returns a name's hash, and the shard that the hash selects.
    fn locate(&self, name: &LockName) -> (u64, &Mutex<MemoryShard>) {
        let hash = self.hasher.hash_one(name.as_str());
        // The middle bits choose the shard. The table uses the lowest and the highest bits, which
        // would otherwise be the same for all names of a shard.
        (hash, &self.shards[usize::try_from(hash >> 32).unwrap_or_default() % SHARDS])
    }

    fn micros(&self) -> Micros {
        self.clock.now().as_nanos() / 1000
    }

    /// Applies an operation to a name and wakes the claims that it grants.
    fn apply<T>(
        &self,
        name: &LockName,
        op: &Op,
        then: impl FnOnce(&Machine, &mut WaitingTasks, Outcome) -> T,
    ) -> T {
        let (hash, shard) = self.locate(name);
        let mut shard = shard.lock();
        let now = self.micros();
        self.apply_in(&mut shard, name, hash, op, now, then)
    }

    fn apply_in<T>(
        &self,
        shard: &mut MemoryShard,
        name: &LockName,
        hash: u64,
        op: &Op,
        now: Micros,
        then: impl FnOnce(&Machine, &mut WaitingTasks, Outcome) -> T,
    ) -> T {
        let MemoryShard { names, waiting, grants } = shard;
        let machine = names.machine(name, hash, &self.hasher, now);
        let outcome = machine.apply(op, now, grants);
        waiting.wake(grants.drain(..).map(|granted| granted.claim));
        then(machine, waiting, outcome)
    }
}

impl Names {
    fn machine(
        &mut self,
        name: &LockName,
        hash: u64,
        hasher: &DefaultHashBuilder,
        now: Micros,
    ) -> &mut Machine {
        if self.records.len() >= self.sweep_at {
            self.sweep(now);
        }
        let again = |record: &Record| hasher.hash_one(record.name.as_str());
        let record = match self.records.entry(hash, |record| record.name == *name, again) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(vacant) => {
                let machine = Machine::after_token(self.forgotten);
                vacant.insert(Record { name: name.clone(), machine }).into_mut()
            }
        };
        &mut record.machine
    }

    /// Removes the records of free names.
    fn sweep(&mut self, now: Micros) {
        let forgotten = &mut self.forgotten;
        self.records.retain(|record| {
            let last = record.machine.last_token();
            let forget = record.machine.is_free(now) && last <= LARGEST_FORGOTTEN;
            if forget {
                *forgotten = (*forgotten).max(last);
            }
            !forget
        });
        self.sweep_at = SWEEP_AT_LEAST.max(2 * self.records.len());
    }
}

impl WaitingTasks {
    fn wake(&mut self, claims: impl IntoIterator<Item = ClaimId>) {
        if self.0.is_empty() {
            return;
        }
        for claim in claims {
            self.0.remove(&claim);
        }
    }
}

fn micros(duration: Duration) -> Micros {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}

fn acquire_op(request: &AcquireRequest) -> Op {
    Op::Acquire {
        claim: request.claim,
        mode: request.mode,
        lease: micros(request.lease),
        block: request.tokens,
        queue: request.queue,
        home: 0,
        note: request.note.clone(),
    }
}

fn grant(granted: &Granted) -> Result<Grant, Error> {
    let since = Instant::from_nanos(granted.since.saturating_mul(1000));
    Ok(Grant::new(FencingToken::new(granted.token)?, granted.block, since))
}

fn acquired(mode: Mode, outcome: Outcome) -> Result<Acquired, Error> {
    match outcome {
        Outcome::Granted(granted) => grant(&granted).map(Acquired::Granted),
        Outcome::Queued { .. } => Ok(Acquired::Queued),
        Outcome::Conflict { capacity } => Err(conflict(mode, capacity)),
        Outcome::Spent => Err(spent()),
        _ => Ok(Acquired::Busy),
    }
}

#[async_trait]
impl Backend for Memory {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::WEAKEST
            .with_exclusion(Exclusion::Nothing)
            .with_fencing(Fencing::Volatile)
            .with_orphan_release(OrphanRelease::LeaseEnd)
            .with_fairness(Fairness::Fifo)
            .with_wake_up(WakeUp::Push)
            .with_scope(Scope::Process)
            .with_permits(Permits::Counted)
            .with_notes(Notes::Kept)
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        Answer::ready(self.apply(&request.name, &acquire_op(request), |_, _, outcome| {
            acquired(request.mode, outcome)
        }))
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let op = Op::Renew {
            claim: request.claim,
            mode: request.mode,
            lease: micros(request.lease),
            is_last: false,
        };
        loop {
            let waiting = self.apply(&request.name, &op, |lock, tasks, outcome| match outcome {
                Outcome::Granted(granted) => Ok(Err(granted)),
                // Registered while the shard is locked: see above.
                Outcome::Queued { .. } => {
                    let (sender, turn) = oneshot::channel();
                    tasks.0.insert(request.claim, sender);
                    Ok(Ok((turn, lock.next_expiry())))
                }
                // The sender of an earlier round is removed with the claim, so that none is left in
                // the map.
                Outcome::Spent => {
                    tasks.wake([request.claim]);
                    Err(spent())
                }
                _ => {
                    tasks.wake([request.claim]);
                    Err(Error::new(
                        ErrorKind::NotHeld,
                        "the claim expired while it waited in the queue: acquire the lock again",
                    ))
                }
            })?;
            let (turn, next_expiry) = match waiting {
                Err(granted) => return grant(&granted),
                Ok(waiting) => waiting,
            };
            let next_heartbeat = self.clock.now().saturating_add(request.lease / 3);
            // An expired lease grants the lock only with the next operation on the name, and no
            // other client may send one. So the task checks again at the first expiry, and after a
            // third of its own lease, since its place in the queue has a lease as well.
            let next = next_expiry
                .map_or(next_heartbeat, |at| Instant::from_nanos(at.saturating_mul(1000)))
                .min(next_heartbeat);
            tokio::select! {
                _ = turn => {}
                () = self.clock.sleep_until(next) => {}
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let renew = |renewal: &Renewal| {
            let op = Op::Renew {
                claim: renewal.claim.id,
                mode: renewal.mode,
                lease: micros(renewal.lease),
                is_last: renewal.is_last,
            };
            self.apply(&renewal.claim.name, &op, |_, _, outcome| match (outcome, renewal.token) {
                (Outcome::Granted(of), Some(own)) if of.token != own.get() => Renewed::Forgotten,
                (Outcome::Granted(_), _) => Renewed::Kept,
                _ => Renewed::Lost,
            })
        };
        Ok(renewals.iter().map(renew).collect())
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let op = Op::Release { claim: claim.id, used: claim.used, bar: 0 };
        Answer::ready(Ok(self.apply(&claim.name, &op, |_, waiting, outcome| {
            waiting.wake([claim.id]);
            match outcome {
                Outcome::Released => Released::Released,
                _ => Released::AlreadyLost,
            }
        })))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let (hash, shard) = self.locate(name);
        let shard = shard.lock();
        let record = shard.names.records.find(hash, |record| record.name == *name);
        // The record of a free name may have been removed. Its tokens are not above `forgotten`.
        let forgotten = || FencingToken::new(shard.names.forgotten).ok();
        let unknown = || LockState::new(Vec::new(), Vec::new(), forgotten());
        Ok(record.map_or_else(unknown, |record| record.machine.inspect(self.micros())))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        // All shards of these names are locked at once, so that the claims enter at one point in
        // time. Every caller locks them in the order of the array, so two callers do not deadlock.
        let located: Vec<_> = requests.iter().map(|request| self.locate(&request.name)).collect();
        let mut shards: Vec<_> = self
            .shards
            .iter()
            .map(|shard| {
                located.iter().any(|(_, wanted)| std::ptr::eq(*wanted, shard)).then(|| shard.lock())
            })
            .collect();
        let now = self.micros();
        let mut answers = Vec::with_capacity(requests.len());
        for (request, (hash, wanted)) in requests.iter().zip(located) {
            let at = self.shards.iter().position(|shard| std::ptr::eq(shard, wanted));
            let Some(shard) = at.and_then(|at| shards[at].as_mut()) else { continue };
            let op = acquire_op(request);
            let answer = self.apply_in(shard, &request.name, hash, &op, now, |_, _, outcome| {
                acquired(request.mode, outcome)
            });
            answers.push(answer.map_err(|error| error.with_lock(&request.name)));
        }
        // After a conflict on one name the other claims are in their queues. The error's certainty
        // makes the core cancel them.
        let answers: Result<Vec<_>, Error> = answers.into_iter().collect();
        Some(Answer::ready(answers.map_err(|error| error.with_certainty(Certainty::Unknown))))
    }
}

fn connect(url: BackendUrl) -> Connecting {
    let refused = match url.address().split_once('?') {
        Some((_, options)) => Some(Error::config(
            ConfigIssue::UnknownOption,
            format!(
                "memory: has no option {:.80}: use dlock's own, which begin with dlock., such as \
                 dlock.lease=10s",
                url.shown_option(options.split(['=', '&']).next().unwrap_or_default())
            ),
        )),
        None if url.address().is_empty() => None,
        None => Some(Error::config(
            ConfigIssue::Url,
            "memory: takes no address, because each connection is a separate store: write memory: \
             and share the Locks",
        )),
    };
    Box::pin(async move { refused.map_or_else(|| Ok(Memory::new() as DynBackend), Err) })
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("store", &self.store).finish_non_exhaustive()
    }
}

#[async_trait]
impl Admin for Memory {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let now = self.micros();
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let held = shard.names.records.iter().filter(|record| {
                record.name.as_str().starts_with(prefix) && !record.machine.is_free(now)
            });
            names.extend(held.take(limit - names.len()).map(|record| record.name.clone()));
        }
        Ok(names)
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(vec![Finding::fine(
            "reach",
            "the locks are in the memory of this process, and no other process sees them",
        )])
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.apply(name, &Op::Raise { above: above.get() }, |_, _, _| ());
        Ok(())
    }
}
