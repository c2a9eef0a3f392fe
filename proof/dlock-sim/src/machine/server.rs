//! The server: the machines of all names.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::{
    ClaimId, ClaimState, LockName, LockState,
    machine::{Machine, Op, Outcome},
};

use super::messages::{Applied, Request, Response, Validity};
use crate::{
    faults::{Micros, micros},
    world::{Held, Server, World, process_in},
};

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
    mutant: Option<&'static str>,
}

impl MachineServer {
    pub(super) const fn new(mutant: Option<&'static str>) -> Self {
        Self { names: BTreeMap::new(), released: BTreeSet::new(), clock: 0, epoch: 0, mutant }
    }

    fn lose_data(&mut self) {
        self.names.clear();
        self.released.clear();
        self.epoch += 1;
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
        if self.has("no-notification") {
            granted.clear();
        }
        (Response { clock, epoch: self.epoch, applied, state }, granted)
    }

    fn has(&self, mutant: &str) -> bool {
        self.mutant == Some(mutant)
    }

    fn deadline(&self, valid: Validity) -> Option<Micros> {
        match valid.epoch == self.epoch {
            _ if self.has("late-requests") => None,
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

impl Server for MachineServer {
    /// It has no connections.
    fn receive(&mut self, _: &mut World, _: u64, _: &[u8]) {}

    fn restart(&mut self, _: &mut World, keeps_data: bool) {
        if !keeps_data {
            self.lose_data();
        }
    }

    fn left(&mut self, clock: Micros) -> Vec<String> {
        let names = self.names.iter();
        names.flat_map(|(name, machine)| left(name.as_str(), machine, clock)).collect()
    }

    fn held(&mut self, clock: Micros) -> Vec<Held> {
        let names = self.names.iter();
        names.flat_map(|(name, machine)| held(name.as_str(), machine, clock)).collect()
    }
}

/// Returns a line for each claim of a lock.
pub(crate) fn left(name: &str, machine: &Machine, clock: Micros) -> Vec<String> {
    let state = machine.inspect(clock);
    let claims = state.holders.iter().map(|claim| ("held", claim));
    let claims = claims.chain(state.waiters.iter().map(|claim| ("queued", claim)));
    let line = |(how, claim): (&str, &ClaimState)| {
        let (id, note, time) = (claim.claim, &claim.note, claim.remaining);
        format!("{name}: claim {id} {how} with the note {note:?} for {time:?}")
    };
    claims.map(line).collect()
}

/// Returns the grants of a lock.
pub(crate) fn held(name: &str, machine: &Machine, clock: Micros) -> Vec<Held> {
    let holders = machine.inspect(clock).holders.into_iter();
    let held = holders.filter_map(|holder| {
        let grant = machine.grant_of(holder.claim)?;
        let tokens = (grant.token, grant.token + u64::from(grant.block) - 1);
        let remaining = micros(holder.remaining);
        let process = holder.note.as_ref().and_then(|note| process_in(note.as_str()));
        Some(Held { name: name.to_owned(), tokens, remaining, process })
    });
    held.collect()
}

/// What a broken server does in place of this operation.
fn mutated(mutant: &str, op: &Op, machine: &mut Machine, now: Micros) -> Op {
    let holder = machine.grants().next().map(|grant| grant.claim);
    match (mutant, op.clone(), holder) {
        ("release-of-another", Op::Release { used, bar, .. }, Some(claim)) => {
            Op::Release { claim, used, bar }
        }
        ("late-requests", Op::Release { claim, used, .. }, _) => {
            Op::Release { claim, used, bar: 0 }
        }
        ("renewal-of-another", Op::Renew { claim, mode, lease, is_last }, Some(holder)) => {
            let claim = if machine.ahead_of(claim).is_none() { holder } else { claim };
            Op::Renew { claim, mode, lease, is_last }
        }
        ("repeated-acquire", Op::Acquire { claim, mode, lease, block, queue, home, note }, _) => {
            let is_known = machine.ahead_of(claim).is_some();
            let claim = if is_known { ClaimId::from_bits(claim.to_bits() ^ 1) } else { claim };
            Op::Acquire { claim, mode, lease, block, queue, home, note }
        }
        ("free-lock-forgotten", op, _) => {
            if machine.is_free(now) {
                *machine = Machine::default();
            }
            op
        }
        (_, op, _) => op,
    }
}
