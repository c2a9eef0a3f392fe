//! The server: the machines of all names.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::{
    ClaimId, LockName, LockState,
    machine::{Machine, Op, Outcome},
};

use super::messages::{Applied, Request, Response, Validity};
use crate::{faults::Micros, mutant::Mutant};

/// A claim that an operation of another client has granted, and the client to notify.
type Granted = (u32, ClaimId);

#[derive(Debug)]
pub(crate) struct MachineServer {
    names: BTreeMap<LockName, Machine>,
    /// The claims that releases have removed.
    released: BTreeSet<ClaimId>,
    /// What the clock showed last.
    clock: Micros,
    epoch: u64,
    mutant: Option<Mutant>,
}

impl MachineServer {
    pub(crate) const fn new(mutant: Option<Mutant>) -> Self {
        Self { names: BTreeMap::new(), released: BTreeSet::new(), clock: 0, epoch: 0, mutant }
    }

    /// Starts again, with the data or without.
    pub(crate) fn restart(&mut self, keeps_data: bool) {
        if !keeps_data {
            self.names.clear();
            self.released.clear();
            self.epoch += 1;
        }
    }

    /// Returns the claims that are left, each with its note.
    pub(crate) fn left(&self, clock: Micros) -> Vec<String> {
        let mut left = Vec::new();
        for (name, machine) in &self.names {
            let state = machine.inspect(clock);
            let claims = state.holders.iter().map(|claim| ("held", claim));
            let claims = claims.chain(state.waiters.iter().map(|claim| ("queued", claim)));
            left.extend(claims.map(|(how, claim)| {
                let (id, note, time) = (claim.claim, &claim.note, claim.remaining);
                format!("{name}: claim {id} {how} with the note {note:?} for {time:?}")
            }));
        }
        left
    }

    /// Executes a request. Returns the answer, and the claims of other clients that it grants.
    pub(super) fn serve(&mut self, request: &Request, clock: Micros) -> (Response, Vec<Granted>) {
        // Bars that were over would be needed again.
        self.epoch += u64::from(clock < self.clock);
        self.clock = clock;
        let (mut applied, mut granted) = (Vec::new(), Vec::new());
        let mut state = LockState::default();
        match request {
            Request::Sample => {}
            Request::Apply { ops, valid } => {
                let deadline = valid.and_then(|valid| self.deadline(valid));
                for (name, op) in ops {
                    applied.push(self.apply(name, op, deadline, clock, &mut granted));
                }
            }
            Request::Inspect(name) => {
                state = self.names.get(name).map(|of| of.inspect(clock)).unwrap_or_default();
            }
        }
        if self.has(Mutant::NoNotification) {
            granted.clear();
        }
        (Response { clock, epoch: self.epoch, applied, state }, granted)
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn deadline(&self, valid: Validity) -> Option<Micros> {
        match valid.epoch == self.epoch {
            _ if self.has(Mutant::LateRequests) => None,
            true => Some(valid.deadline),
            false => Some(0),
        }
    }

    fn apply(
        &mut self,
        name: &LockName,
        op: &Op,
        deadline: Option<Micros>,
        now: Micros,
        granted: &mut Vec<Granted>,
    ) -> Applied {
        let machine = self.names.entry(name.clone()).or_default();
        let op = match self.mutant {
            Some(mutant) => mutated(mutant, op, machine, now),
            None => op.clone(),
        };
        let mut grants = Vec::new();
        let mut outcome = machine.apply_by(&op, deadline, now, &mut grants);
        match (&op, outcome) {
            (
                Op::Acquire { claim, .. },
                Outcome::Busy | Outcome::Conflict { .. } | Outcome::Spent,
            ) => {
                let bar = Op::Release { claim: *claim, used: 0, bar: deadline.unwrap_or(0) };
                machine.apply(&bar, now, &mut grants);
            }
            (Op::Release { claim, .. }, Outcome::Released) => {
                self.released.insert(*claim);
            }
            (Op::Release { claim, .. }, Outcome::NotFound) if self.released.contains(claim) => {
                outcome = Outcome::Released;
            }
            _ => {}
        }
        let others = grants.iter().filter(|grant| Some(grant.claim) != op.claim());
        granted.extend(others.map(|grant| (grant.home, grant.claim)));
        let (last_token, next_expiry) = (machine.last_token(), machine.next_expiry());
        Applied { outcome, last_token, next_expiry }
    }
}

/// What a broken server does in place of this operation.
fn mutated(mutant: Mutant, op: &Op, machine: &mut Machine, now: Micros) -> Op {
    let holder = machine.grants().next().map(|grant| grant.claim);
    match (mutant, op.clone(), holder) {
        (Mutant::ReleaseOfAnother, Op::Release { used, bar, .. }, Some(claim)) => {
            Op::Release { claim, used, bar }
        }
        (Mutant::LateRequests, Op::Release { claim, used, .. }, _) => {
            Op::Release { claim, used, bar: 0 }
        }
        (Mutant::RenewalOfAnother, Op::Renew { claim, mode, lease, is_last }, Some(holder)) => {
            let claim = if machine.ahead_of(claim).is_none() { holder } else { claim };
            Op::Renew { claim, mode, lease, is_last }
        }
        (
            Mutant::RepeatedAcquire,
            Op::Acquire { claim, mode, lease, block, queue, home, note },
            _,
        ) => {
            let is_known = machine.ahead_of(claim).is_some();
            let claim = if is_known { ClaimId::from_bits(claim.to_bits() ^ 1) } else { claim };
            Op::Acquire { claim, mode, lease, block, queue, home, note }
        }
        (Mutant::FreeLockForgotten, op, _) => {
            if machine.is_free(now) {
                *machine = Machine::default();
            }
            op
        }
        (_, op, _) => op,
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::{Mode, Queue};

    use super::*;

    const NOW: Micros = 1_000_000;

    fn acquire(claim: u128, queue: Queue) -> Op {
        let (claim, lease) = (ClaimId::from_bits(claim), 500_000);
        Op::Acquire { claim, mode: Mode::Exclusive, lease, block: 1, queue, home: 7, note: None }
    }

    fn release(claim: u128, bar: Micros) -> Op {
        Op::Release { claim: ClaimId::from_bits(claim), used: 0, bar }
    }

    /// Executes an operation that was sent in this epoch, at this time.
    fn send(server: &mut MachineServer, op: Op, epoch: u64, at: Micros) -> (Outcome, usize) {
        let valid = Some(Validity { deadline: NOW + 10, epoch });
        let ops = vec![(LockName::new("a").unwrap(), op)];
        let (response, granted) = server.serve(&Request::Apply { ops, valid }, at);
        (response.applied[0].outcome, granted.len())
    }

    #[test]
    fn all_copies_of_a_request_have_one_effect() {
        let mut server = MachineServer::new(None);
        let send = |server: &mut _, op| send(server, op, 0, NOW);
        for _ in 0..2 {
            assert!(matches!(send(&mut server, acquire(1, Queue::Enqueue)).0, Outcome::Granted(_)));
        }
        assert_eq!(send(&mut server, acquire(2, Queue::FailIfBusy)).0, Outcome::Busy);
        assert_eq!(send(&mut server, acquire(3, Queue::Enqueue)).0, Outcome::Queued { ahead: 1 });
        assert_eq!(send(&mut server, release(1, NOW + 10)), (Outcome::Released, 1));
        assert_eq!(send(&mut server, release(1, NOW + 10)), (Outcome::Released, 0));
        for claim in [1, 2] {
            assert_eq!(send(&mut server, acquire(claim, Queue::Enqueue)).0, Outcome::Late);
        }
        assert_eq!(server.left(NOW).len(), 1);
    }

    #[test]
    fn an_acquire_after_its_deadline_or_of_another_epoch_is_late() {
        let mut server = MachineServer::new(None);
        server.restart(true);
        let first = send(&mut server, acquire(1, Queue::Enqueue), 0, NOW).0;
        assert!(matches!(first, Outcome::Granted(_)), "{first:?}");
        let mut second = |epoch, at| send(&mut server, acquire(2, Queue::Enqueue), epoch, at).0;
        assert_eq!(second(0, NOW + 11), Outcome::Late);
        assert_eq!(second(0, NOW), Outcome::Late, "the clock was set back");
        assert_eq!(second(1, NOW), Outcome::Queued { ahead: 1 });
        server.restart(false);
        assert_eq!(send(&mut server, acquire(3, Queue::Enqueue), 1, NOW).0, Outcome::Late);
        assert_eq!(server.left(NOW), [""; 0]);
        assert_eq!(send(&mut server, release(1, 0), 2, NOW).0, Outcome::NotFound);
    }
}
