//! Plays random sequences of the contract's verbs by several claims of two clients.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, ClaimState, DynBackend, ErrorKind, FencingToken, Grant,
    LockName, Mode, OrphanRelease, Queue, Released, Renewal, Renewed,
};
use proptest::prelude::*;

use crate::{
    Stop, Verdict,
    context::{Cx, pass},
    model::{Member, Model, Standing},
    stop::{ensure, ensure_eq},
    verbs::{ask, ensure_remembered},
};

/// The largest number of claims at one time.
const SLOTS: usize = 6;

/// One step. Each slot has a claim of one of two clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VerbStep {
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
pub(crate) fn sequences(
    fifo: bool,
    permits: bool,
    steps: usize,
) -> impl Strategy<Value = Vec<VerbStep>> {
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
pub(crate) async fn run(cx: Cx, steps: Vec<VerbStep>) -> Verdict {
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
