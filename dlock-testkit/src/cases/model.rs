//! Compares random operations of several clients with the sequential model, step by step: verbs of
//! the contract by several claims of two clients, and locks of all kinds.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, ClaimState, DynBackend, ErrorKind, Fairness, FencingToken,
    Grant, Guard, LockName, Locks, Mode, OrphanRelease, Owner, Queue, Released, Renewal, Renewed,
};
use proptest::{
    prelude::*,
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestRunner},
};
use tokio::runtime::Handle;

use crate::{
    Stop, Verdict,
    case::{Cx, Need, pass},
    model::{Member, Model, Standing},
    stop::{ensure, ensure_eq},
    suite::HANGS,
    verbs::{ask, ensure_remembered},
};

/// The number of sequences, and the largest number of steps in one.
const SEQUENCES: u32 = 64;
const STEPS: usize = 40;

pub(crate) async fn random_verbs_do_what_the_model_does(cx: Cx) -> Verdict {
    let fifo = cx.guarantees().fairness == Fairness::Fifo;
    let permits = Need::Permits.missing_in(&cx.guarantees(), None).is_none();
    let strategy = verb_sequences(fifo, permits, STEPS);
    let of = cx.clone();
    every(&cx, &strategy, move |steps| play_verbs(of.clone(), steps))
}

pub(crate) async fn random_guards_do_what_the_model_does(cx: Cx) -> Verdict {
    let permits = Need::Permits.missing_in(&cx.guarantees(), None).is_none();
    let strategy = guard_sequences(permits, STEPS);
    let of = cx.clone();
    every(&cx, &strategy, move |steps| play_guards(of.clone(), steps))
}

/// Plays many sequences, and reports the shortest one that fails.
fn every<S, F>(cx: &Cx, strategy: &S, run: impl Fn(S::Value) -> F) -> Verdict
where
    S: Strategy,
    F: Future<Output = Verdict>,
{
    let config = Config {
        cases: cx.effort(SEQUENCES),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let runtime = Handle::current();
    let result = tokio::task::block_in_place(|| {
        TestRunner::new(config).run(strategy, |steps| {
            let one = async { tokio::time::timeout(cx.bound() * HANGS, run(steps)).await };
            let verdict = runtime.block_on(one).unwrap_or_else(|_| Err(Stop::failed("it hangs")));
            // Each completed sequence restarts the bound that detects a hanging case.
            cx.goes_on();
            verdict.map_err(|stop: Stop| TestCaseError::fail(stop.into_text()))
        })
    });
    Ok(result?)
}

/// The largest number of claims at one time.
const SLOTS: usize = 6;

/// One step with the verbs of the contract. Each slot has a claim of one of two clients.
#[derive(Clone, Copy, Debug)]
enum VerbStep {
    /// A new claim is requested, or the request of the slot's claim is repeated.
    Acquire {
        slot: usize,
        mode: Mode,
        wait: bool,
    },
    /// A claim with a short lease is requested, and expires.
    Lapse {
        slot: usize,
        mode: Mode,
        wait: bool,
    },
    Release {
        slot: usize,
    },
    Renew {
        slot: usize,
    },
    /// A claim is renewed as a reader, or with one permit.
    Weaken {
        slot: usize,
    },
    /// The grant of a claim that holds the lock is requested.
    Granted {
        slot: usize,
    },
}

/// Returns a strategy for sequences on a read-write lock or on a semaphore.
fn verb_sequences(fifo: bool, permits: bool, steps: usize) -> impl Strategy<Value = Vec<VerbStep>> {
    let semaphore = if permits { any::<bool>().boxed() } else { Just(false).boxed() };
    semaphore.prop_flat_map(move |semaphore| {
        let mode = move || mode(semaphore, permits);
        let slot = || 0..SLOTS;
        let wait = move || if fifo { any::<bool>().boxed() } else { Just(false).boxed() };
        let step = prop_oneof![
            80 => (slot(), mode(), wait())
                .prop_map(|(slot, mode, wait)| VerbStep::Acquire { slot, mode, wait }),
            60 => slot().prop_map(|slot| VerbStep::Release { slot }),
            20 => slot().prop_map(|slot| VerbStep::Renew { slot }),
            16 => slot().prop_map(|slot| VerbStep::Weaken { slot }),
            16 => slot().prop_map(|slot| VerbStep::Granted { slot }),
            1 => (slot(), mode(), wait())
                .prop_map(|(slot, mode, wait)| VerbStep::Lapse { slot, mode, wait }),
        ];
        prop::collection::vec(step, 1..=steps)
    })
}

fn mode(semaphore: bool, permits: bool) -> BoxedStrategy<Mode> {
    let plain = || prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)];
    let counted = || (1u32..=3).prop_map(|n| Mode::Permits { n, of: 3 });
    match (semaphore, permits) {
        (true, _) => prop_oneof![20 => counted(), 1 => plain()].boxed(),
        // A few claims use the name of a read-write lock for a semaphore.
        (false, true) => prop_oneof![20 => plain(), 1 => counted()].boxed(),
        (false, false) => plain().boxed(),
    }
}

/// Plays the steps on a new name.
async fn play_verbs(cx: Cx, steps: Vec<VerbStep>) -> Verdict {
    let name = cx.name("lock");
    let clients = [cx.backend().await?, cx.backend().await?];
    let mut play = VerbPlay {
        lapse: cx.lease(),
        cx,
        clients,
        name,
        model: Model::default(),
        slots: [const { None }; SLOTS],
        last: None,
        known: Vec::new(),
    };
    for step in steps {
        play.step(step).await?;
        play.compare(step).await?;
    }
    for slot in 0..SLOTS {
        play.release(slot).await?;
    }
    Ok(())
}

struct VerbPlay {
    cx: Cx,
    clients: [DynBackend; 2],
    name: LockName,
    model: Model,
    slots: [Option<AcquireRequest>; SLOTS],
    lapse: Duration,
    /// The largest token seen, and the tokens of the claims that have one.
    last: Option<FencingToken>,
    known: Vec<(ClaimId, FencingToken)>,
}

impl VerbPlay {
    async fn step(&mut self, step: VerbStep) -> Verdict {
        match step {
            VerbStep::Acquire { slot, mode, wait } => {
                let request = match &self.slots[slot] {
                    Some(request) if self.stands(request.claim).is_some() => request.clone(),
                    _ => self.new_claim(slot, mode, wait, Duration::from_secs(300)),
                };
                self.acquire(slot, &request).await
            }
            VerbStep::Lapse { slot, mode, wait } => {
                self.release(slot).await?;
                self.compare(step).await?;
                let request = self.new_claim(slot, mode, wait, self.lapse);
                self.acquire(slot, &request).await?;
                pass(self.lapse * 2).await;
                self.model.release(request.claim, 0);
                // A store may grant the next claim only when a request arrives.
                self.client(slot).release(&ask(&self.name, mode).as_claim()).await?;
                Ok(())
            }
            VerbStep::Release { slot } => self.release(slot).await,
            VerbStep::Renew { slot } => self.renew(slot, false).await,
            VerbStep::Weaken { slot } => self.renew(slot, true).await,
            VerbStep::Granted { slot } => match &self.slots[slot] {
                Some(request) if self.stands(request.claim) == Some(Standing::Held) => {
                    let granted = self.client(slot).granted(request);
                    let grant = self.cx.within("a holder learns that it is one", granted).await??;
                    self.holds(request.claim, grant)
                }
                _ => Ok(()),
            },
        }
    }

    fn new_claim(
        &mut self,
        slot: usize,
        mode: Mode,
        wait: bool,
        lease: Duration,
    ) -> AcquireRequest {
        let queue = if wait { Queue::Enqueue } else { Queue::FailIfBusy };
        let request = ask(&self.name, mode).with_lease(lease).with_queue(queue);
        self.slots[slot] = Some(request.clone());
        request
    }

    async fn acquire(&mut self, slot: usize, request: &AcquireRequest) -> Verdict {
        let AcquireRequest { claim: id, mode, .. } = *request;
        let member = Member { id, mode, held: false, lease: 1, until: 1, last: false };
        let expected = self.model.acquire(member, request.queue == Queue::Enqueue, 0);
        let answer = self.client(slot).acquire(request).await;
        match (expected, answer) {
            (Standing::Held, Ok(Acquired::Granted(grant))) => self.holds(id, grant),
            (Standing::Waits, Ok(Acquired::Queued)) | (Standing::Busy, Ok(Acquired::Busy)) => {
                Ok(())
            }
            (Standing::Conflict, Err(error)) if matches!(error.kind(), ErrorKind::Config(_)) => {
                Ok(())
            }
            (expected, answer) => Err(Stop::failed(format!("{answer:?} is not {expected:?}"))),
        }
    }

    async fn release(&mut self, slot: usize) -> Verdict {
        let Some(request) = &self.slots[slot] else { return Ok(()) };
        let expected = match self.model.release(request.claim, 0) {
            true => Released::Released,
            false => Released::AlreadyLost,
        };
        let answer = self.client(slot).release(&request.as_claim()).await?;
        ensure_eq!(answer, expected, "the release of {:?}", request.claim);
        Ok(())
    }

    async fn renew(&mut self, slot: usize, weaker: bool) -> Verdict {
        let Some(request) = &self.slots[slot] else { return Ok(()) };
        let now = self.model.claims.iter().find(|member| member.id == request.claim);
        let mode = match now.map_or(request.mode, |member| member.mode) {
            Mode::Permits { of, .. } if weaker => Mode::Permits { n: 1, of },
            Mode::Exclusive if weaker => Mode::Shared,
            mode => mode,
        };
        let expected = match self.stands(request.claim) {
            Some(Standing::Held) => Renewed::Kept,
            // Waiters are not renewed here: the core only renews holders.
            Some(_) => return Ok(()),
            None => Renewed::Lost,
        };
        self.model.renew(request.claim, mode, 1, false, 0);
        let renewal = Renewal::new(request.as_claim(), mode, request.lease);
        let answers = self.client(slot).renew(&[renewal]).await?;
        ensure_eq!(answers, [expected], "the renewal of {:?}", request.claim);
        Ok(())
    }

    /// Checks that `inspect` shows the state of the model.
    async fn compare(&mut self, step: VerbStep) -> Verdict {
        let state = self.clients[1].inspect(&self.name).await?;
        let seen = |claims: &[ClaimState]| -> Vec<_> {
            claims.iter().map(|claim| (claim.claim, claim.mode)).collect()
        };
        let holders: Vec<_> = self.model.holders().map(|m| (m.id, m.mode)).collect();
        let waiters: Vec<_> = self.model.waiters().map(|m| (m.id, m.mode)).collect();
        ensure_eq!(seen(&state.holders), holders, "the holders after {step:?}");
        ensure_eq!(seen(&state.waiters), waiters, "the waiters after {step:?}");
        for holder in &state.holders {
            let token = holder.token.ok_or("a holder without a token")?;
            self.token(holder.claim, token)?;
        }
        // If a claim is a node of a session, its token is not recorded after the claim ends.
        let granted = match self.cx.guarantees().orphan_release {
            OrphanRelease::SessionEnd => state.holders.iter().filter_map(|it| it.token).max(),
            _ => self.last,
        };
        ensure_remembered(&state, granted)
    }

    fn holds(&mut self, claim: ClaimId, grant: Grant) -> Verdict {
        ensure_eq!(grant.tokens, 1, "the tokens");
        self.token(claim, grant.token)
    }

    /// Checks that a claim keeps its token, and that a new token is larger than all before.
    fn token(&mut self, claim: ClaimId, token: FencingToken) -> Verdict {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == claim) {
            ensure_eq!(token, *known, "the token of {claim:?}");
            return Ok(());
        }
        ensure!(self.last < Some(token), "{token:?} after {:?}", self.last);
        self.last = Some(token);
        self.known.push((claim, token));
        Ok(())
    }

    fn stands(&self, claim: ClaimId) -> Option<Standing> {
        let member = self.model.claims.iter().find(|member| member.id == claim)?;
        Some(if member.held { Standing::Held } else { Standing::Waits })
    }

    fn client(&self, slot: usize) -> &DynBackend {
        &self.clients[slot % 2]
    }
}

const PERMITS: u32 = 3;

/// One step with locks of all kinds, of one of two clients.
#[derive(Clone, Copy, Debug)]
enum GuardStep {
    /// Tries to take a lock.
    Try { kind: Kind, client: usize },
    /// Releases the guard at index `nth`, if it exists.
    Release { nth: usize },
    /// Downgrades the guard at index `nth`.
    Downgrade { nth: usize },
}

/// The kind of lock that a step tries. Mutex, reader, writer and owner share one name; semaphores
/// have another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Direct,
    Fair,
    Reader,
    Writer,
    Owner,
    Permits(u32),
    Several,
}

/// Returns a strategy for sequences of tries and releases.
fn guard_sequences(permits: bool, steps: usize) -> impl Strategy<Value = Vec<GuardStep>> {
    let kind = prop_oneof![
        Just(Kind::Mutex),
        Just(Kind::Direct),
        Just(Kind::Fair),
        Just(Kind::Reader),
        Just(Kind::Reader),
        Just(Kind::Writer),
        Just(Kind::Owner),
        Just(Kind::Several),
        (1..=PERMITS).prop_map(move |n| if permits { Kind::Permits(n) } else { Kind::Reader }),
    ];
    let step = prop_oneof![
        5 => (kind, 0..2usize).prop_map(|(kind, client)| GuardStep::Try { kind, client }),
        3 => (0..6usize).prop_map(|nth| GuardStep::Release { nth }),
        1 => (0..6usize).prop_map(|nth| GuardStep::Downgrade { nth }),
    ];
    prop::collection::vec(step, 1..=steps)
}

/// Plays the steps on new names.
async fn play_guards(cx: Cx, steps: Vec<GuardStep>) -> Verdict {
    let mut play = GuardPlay {
        fair: Need::Fifo.missing_in(&cx.guarantees(), None).is_none(),
        clients: [cx.locks().await?, cx.locks().await?],
        owners: [Owner::new(), Owner::new()],
        names: [cx.name("one"), cx.name("two"), cx.name("permits")],
        models: [Model::default(), Model::default(), Model::default()],
        held: Vec::new(),
    };
    for step in steps {
        match step {
            GuardStep::Try { kind, client } => play.try_it(kind, client).await?,
            GuardStep::Release { nth } if nth < play.held.len() => play.release(nth).await?,
            GuardStep::Downgrade { nth } if nth < play.held.len() => play.downgrade(nth).await?,
            GuardStep::Release { .. } | GuardStep::Downgrade { .. } => {}
        }
        for held in &play.held {
            held.guard.check()?;
        }
    }
    while !play.held.is_empty() {
        play.release(0).await?;
    }
    Ok(())
}

struct GuardPlay {
    fair: bool,
    clients: [Locks; 2],
    owners: [Owner; 2],
    names: [LockName; 3],
    models: [Model; 3],
    held: Vec<HeldGuard>,
}

/// A guard, and the id of its claim in the model.
struct HeldGuard {
    guard: Guard,
    kind: Kind,
    client: usize,
    id: ClaimId,
}

impl GuardPlay {
    async fn try_it(&mut self, kind: Kind, client: usize) -> Verdict {
        let guard = self.take(kind, client).await?;
        let again = self.held.iter().find(|h| kind == Kind::Owner && same(h, kind, client));
        let (id, expected) = match again {
            Some(held) => (held.id, true),
            None => {
                let id = ClaimId::random();
                (id, self.fits(kind, id))
            }
        };
        ensure_eq!(guard.is_some(), expected, "{kind:?} of client {client} is granted");
        if let Some(guard) = guard {
            self.held.push(HeldGuard { guard, kind, client, id });
        }
        if kind == Kind::Owner {
            let entries = self.held.iter().filter(|h| same(h, kind, client)).count();
            let lock = self.clients[client].reentrant(&self.names[0])?;
            ensure_eq!(lock.hold_count(&self.owners[client]), entries, "the entries");
        }
        Ok(())
    }

    async fn take(&self, kind: Kind, client: usize) -> Result<Option<Guard>, Stop> {
        let (locks, [one, two, permits]) = (&self.clients[client], &self.names);
        Ok(match kind {
            Kind::Fair if self.fair => locks.fair(one)?.try_lock().await?,
            Kind::Mutex | Kind::Fair => locks.mutex(one)?.try_lock().await?,
            Kind::Direct => locks.without_handoff().mutex(one)?.try_lock().await?,
            Kind::Reader => locks.rw(one)?.read().try_lock().await?,
            Kind::Writer => locks.rw(one)?.write().try_lock().await?,
            Kind::Owner => locks.reentrant(one)?.try_lock_as(&self.owners[client]).await?,
            Kind::Permits(n) => locks.semaphore(permits, PERMITS)?.try_acquire_many(n).await?,
            Kind::Several => locks.multi([one, two])?.try_lock().await?,
        })
    }

    /// Whether the model grants the claim. A multi-lock is granted in all of its names or in none.
    fn fits(&mut self, kind: Kind, id: ClaimId) -> bool {
        let (models, mode) = match kind {
            Kind::Permits(n) => (&mut self.models[2..], Mode::Permits { n, of: PERMITS }),
            Kind::Several => (&mut self.models[..2], Mode::Exclusive),
            Kind::Reader => (&mut self.models[..1], Mode::Shared),
            _ => (&mut self.models[..1], Mode::Exclusive),
        };
        let member = Member { id, mode, held: false, lease: 1, until: 1, last: false };
        let fits = models.iter_mut().all(|m| m.acquire(member, false, 0) == Standing::Held);
        if !fits {
            self.forget(id);
        }
        fits
    }

    async fn release(&mut self, nth: usize) -> Verdict {
        let HeldGuard { guard, id, .. } = self.held.remove(nth);
        ensure_eq!(guard.release().await?, Released::Released, "the release");
        if self.held.iter().all(|held| held.id != id) {
            self.forget(id);
        }
        Ok(())
    }

    async fn downgrade(&mut self, nth: usize) -> Verdict {
        let held = &mut self.held[nth];
        let token = held.guard.token();
        let result = held.guard.downgrade().await;
        if held.kind == Kind::Writer {
            result?;
            held.kind = Kind::Reader;
            self.models[0].renew(held.id, Mode::Shared, 1, false, 0);
        } else {
            let error = result.err().ok_or("what is no writer is downgraded")?;
            ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        ensure!(held.guard.token() == token, "another token after the downgrade");
        Ok(())
    }

    fn forget(&mut self, id: ClaimId) {
        for model in &mut self.models {
            model.release(id, 0);
        }
    }
}

fn same(held: &HeldGuard, kind: Kind, client: usize) -> bool {
    held.kind == kind && held.client == client
}
