//! The rules of a lock, as simply as they can be said: what every backend is compared with.
//!
//! Written apart from `dlock_core::machine`, so that one mistake is not in both: this one knows
//! no weights, only who may hold the lock together with whom.

use dlock_core::{ClaimId, Mode};

/// One lock: its claims in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The claims, first come first.
    pub claims: Vec<Member>,
}

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub id: ClaimId,
    /// What it holds or wants.
    pub mode: Mode,
    /// Whether it holds the lock.
    pub held: bool,
    /// How long a grant lasts, in whatever unit of time.
    pub lease: u64,
    /// When its lease ends.
    pub until: u64,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It holds the lock.
    Held,
    /// It waits.
    Waits,
    /// It did not want to wait.
    Busy,
    /// The lock is in use with another capacity.
    Conflict,
}

impl Model {
    /// A claim asks for the lock, for the first time or again.
    pub fn acquire(&mut self, claim: Member, wait: bool, now: u64) -> Standing {
        self.end_leases(now);
        let until = now.saturating_add(claim.lease);
        let in_use_otherwise = self.claims.iter().any(|other| !same_kind(other.mode, claim.mode));
        match self.find(claim.id) {
            Some(member) if member.held => {}
            Some(member) => member.until = member.until.max(until),
            None if in_use_otherwise => {
                self.grant(now);
                return Standing::Conflict;
            }
            None => self.claims.push(Member { held: false, until, ..claim }),
        }
        self.grant(now);
        let held = self.find(claim.id).is_some_and(|member| member.held);
        if !held && !wait {
            self.claims.retain(|member| member.id != claim.id);
            self.grant(now);
        }
        match (held, wait) {
            (true, _) => Standing::Held,
            (false, true) => Standing::Waits,
            (false, false) => Standing::Busy,
        }
    }

    /// A claim starts its lease anew, held, perhaps in a weaker mode, or waiting. How it stands,
    /// unless it is gone.
    pub fn renew(&mut self, id: ClaimId, mode: Mode, lease: u64, now: u64) -> Option<Standing> {
        self.end_leases(now);
        if let Some(member) = self.find(id) {
            let until = now.saturating_add(lease);
            if !member.held {
                member.until = member.until.max(until);
            } else {
                member.mode = mode;
                if member.until.saturating_sub(member.lease) <= now {
                    (member.until, member.lease) = (until, lease);
                }
            }
        }
        self.grant(now);
        let member = self.find(id)?;
        Some(if member.held { Standing::Held } else { Standing::Waits })
    }

    /// Time has passed, and nothing was asked that claims notice.
    pub fn look(&mut self, now: u64) -> bool {
        self.end_leases(now);
        self.grant(now);
        true
    }

    /// A claim is given up. Whether it was there.
    pub fn release(&mut self, id: ClaimId, now: u64) -> bool {
        self.end_leases(now);
        let there = self.find(id).is_some();
        self.claims.retain(|member| member.id != id);
        self.grant(now);
        there
    }

    /// Who holds the lock.
    pub fn holders(&self) -> impl Iterator<Item = &Member> {
        self.claims.iter().filter(|member| member.held)
    }

    /// Who waits, first in line first.
    pub fn waiters(&self) -> impl Iterator<Item = &Member> {
        self.claims.iter().filter(|member| !member.held)
    }

    fn end_leases(&mut self, now: u64) {
        self.claims.retain(|member| member.until > now);
    }

    /// Whoever came first gets the lock as long as it goes together with all who came before.
    fn grant(&mut self, now: u64) {
        for at in 0..self.claims.len() {
            let (before, rest) = self.claims.split_at_mut(at);
            if !go_together(before, rest[0].mode) {
                return;
            }
            if !rest[0].held {
                rest[0].held = true;
                rest[0].until = now.saturating_add(rest[0].lease);
            }
        }
    }

    fn find(&mut self, id: ClaimId) -> Option<&mut Member> {
        self.claims.iter_mut().find(|member| member.id == id)
    }
}

fn go_together(before: &[Member], mode: Mode) -> bool {
    match mode {
        Mode::Shared => before.iter().all(|other| other.mode == Mode::Shared),
        Mode::Permits { n, of } => before.iter().map(permits).sum::<u32>() + n <= of,
        _ => before.is_empty(),
    }
}

fn permits(member: &Member) -> u32 {
    if let Mode::Permits { n, .. } = member.mode { n } else { 0 }
}

fn same_kind(a: Mode, b: Mode) -> bool {
    match (a, b) {
        (Mode::Permits { of: a, .. }, Mode::Permits { of: b, .. }) => a == b,
        (Mode::Permits { .. }, _) | (_, Mode::Permits { .. }) => false,
        _ => true,
    }
}
