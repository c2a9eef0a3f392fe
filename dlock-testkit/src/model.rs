//! The rules of a lock in their simplest form. Every backend is compared with them.
//!
//! The code is independent of `dlock_core::machine`, so that the two do not share a mistake. It has
//! no weights, only the rule which modes may hold the lock together.

use dlock_core::{ClaimId, Mode};

/// One lock: its claims in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The claims, in the order of their arrival.
    pub claims: Vec<Member>,
}

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The id.
    pub id: ClaimId,
    /// The mode that it holds or requests.
    pub mode: Mode,
    /// Whether it holds the lock.
    pub held: bool,
    /// The length of a lease, in any unit of time.
    pub lease: u64,
    /// The time at which its lease expires.
    pub until: u64,
    /// Whether the last renewal has set `until`.
    pub last: bool,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It holds the lock.
    Held,
    /// It waits.
    Waits,
    /// It is refused, because the lock is busy and it does not wait.
    Busy,
    /// The lock is in use with another capacity.
    Conflict,
}

impl Model {
    /// Processes the request of a claim, for the first time or repeated.
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

    /// Renews the lease of a claim, perhaps for the last time. A holder may renew in a weaker mode. Returns the state of the
    /// claim, or `None` if the model does not know it.
    pub fn renew(
        &mut self,
        id: ClaimId,
        mode: Mode,
        lease: u64,
        last: bool,
        now: u64,
    ) -> Option<Standing> {
        self.end_leases(now);
        if let Some(member) = self.find(id) {
            let until = now.saturating_add(lease);
            if !member.held {
                member.until = member.until.max(until);
            } else {
                member.mode = mode;
                match (last, member.last) {
                    (true, false) => member.until = until,
                    (true, true) => member.until = member.until.min(until),
                    (false, false) => member.until = member.until.max(until),
                    (false, true) => {}
                }
                member.last |= last;
            }
        }
        self.grant(now);
        let member = self.find(id)?;
        Some(if member.held { Standing::Held } else { Standing::Waits })
    }

    /// Expires leases and grants the lock, without a request.
    pub fn look(&mut self, now: u64) -> bool {
        self.end_leases(now);
        self.grant(now);
        true
    }

    /// Removes a claim. Returns whether the model knew it.
    pub fn release(&mut self, id: ClaimId, now: u64) -> bool {
        self.end_leases(now);
        let there = self.find(id).is_some();
        self.claims.retain(|member| member.id != id);
        self.grant(now);
        there
    }

    /// Returns the holders.
    pub fn holders(&self) -> impl Iterator<Item = &Member> {
        self.claims.iter().filter(|member| member.held)
    }

    /// Returns the waiters in the order of the queue.
    pub fn waiters(&self) -> impl Iterator<Item = &Member> {
        self.claims.iter().filter(|member| !member.held)
    }

    fn end_leases(&mut self, now: u64) {
        self.claims.retain(|member| member.until > now);
    }

    /// Grants claims in the order of arrival, until one does not go together with all before it.
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
