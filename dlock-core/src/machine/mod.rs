//! The rules of a lock as one pure function: `(state, operation, store time) -> (state, grants)`.
//!
//! It does no I/O and has no clock. The memory backend runs it in place; the SQL backends run it
//! over the text of a row ([`text`]), identically on every client; the property tests and the
//! conformance kit check it.
//!
//! | kind | weight of a claim | capacity |
//! |---|---|---|
//! | mutex, writer | the whole capacity | 2^30 |
//! | reader | 1 | 2^30 |
//! | semaphore | its permits | the number of permits |
//!
//! Entries are in the order of their arrival. **Invariant**: the granted ones are a prefix of the
//! queue, the longest whose weights together fit the capacity. So claims are granted in order of
//! arrival, and neither readers nor writers nor heavy claims starve. The only exception is
//! [`Op::Join`]: it leaves a grant that is due to the next operation of any client
//! ([`Machine::owes_a_grant`]). `dlock-testkit/tests/machine.rs` checks the invariant on random
//! operations.
//!
//! Every operation first removes expired claims. Every operation except `Join` then grants the
//! claims that fit. Each is idempotent by claim id, so a client retries it after a lost answer.

mod op;
pub mod text;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::op::{Granted, Micros, Op, Outcome, conflict, in_use_as, spent};
use crate::{ClaimId, ClaimState, FencingToken, LockState, Mode, Note, Queue};

/// The state of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The largest token that is reserved. It decreases only in `remove`, over tokens that no
    /// client has seen.
    last: u64,
    /// The capacity, which the first claim of a free lock sets.
    capacity: u32,
    entries: Vec<Entry>,
    tombstones: Tombstones,
}

/// One claim, waiting (`token` is zero) or held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    claim: ClaimId,
    weight: u32,
    /// The number of tokens that a grant reserves.
    block: u32,
    /// The first token of the grant.
    token: u64,
    lease: Micros,
    /// The client that receives the notification of the grant.
    home: u32,
    /// The time at which the lease of the grant, or of the place in the queue, expires.
    expires: Micros,
    /// Whether the last renewal has set the lease.
    is_final: bool,
    /// A text that identifies the client to people.
    note: Option<Note>,
}

/// The parameters of a claim that joins the queue.
struct NewEntry<'a> {
    claim: ClaimId,
    mode: Mode,
    lease: Micros,
    block: u32,
    home: u32,
    note: &'a Option<Note>,
}

impl Entry {
    fn granted(&self) -> Option<Granted> {
        (self.token > 0).then(|| Granted {
            claim: self.claim,
            token: self.token,
            block: self.block,
            since: self.expires.saturating_sub(self.lease),
            home: self.home,
        })
    }

    /// Extends the lease. Two renewals over two connections may arrive in the wrong order, so the
    /// earlier end never counts, unless it is the end that the last renewal sets.
    fn renew(&mut self, expires: Micros, lease: Micros, is_last: bool) {
        if self.token == 0 {
            self.expires = self.expires.max(expires);
            return;
        }
        if is_last {
            // Each attempt of the last renewal counts from its arrival, so none ends too early.
            self.expires = if self.is_final { self.expires.min(expires) } else { expires };
            self.is_final = true;
        } else if !self.is_final {
            self.expires = self.expires.max(expires);
        }
        // Never shorter: a holder relies on `since` and the lease that it requested first.
        self.lease = self.lease.max(lease);
    }
}

impl Machine {
    /// Creates a free lock whose next token is above `last`.
    pub const fn after_token(last: u64) -> Self {
        Self { last, capacity: 0, entries: Vec::new(), tombstones: Tombstones::new() }
    }

    /// Applies an operation that has a deadline. After the deadline it has no effect. The deadline
    /// does not apply to a release, because nobody acquires a released claim again.
    pub fn apply_by(
        &mut self,
        op: &Op,
        deadline: Option<Micros>,
        now: Micros,
        grants: &mut Vec<Granted>,
    ) -> Outcome {
        match op {
            Op::Release { .. } => self.apply(op, now, grants),
            _ if deadline.is_some_and(|deadline| now > deadline) => Outcome::Late,
            _ => self.apply(op, now, grants),
        }
    }

    /// Applies `op` at the store's time `now`.
    ///
    /// Every claim that this grants, the operation's own and others, is appended to `grants`.
    pub fn apply(&mut self, op: &Op, now: Micros, grants: &mut Vec<Granted>) -> Outcome {
        self.entries.retain(|e| e.expires > now);
        self.tombstones.forget(now);
        match *op {
            Op::Acquire { claim, mode, lease, block, queue, home, ref note } => {
                let new = NewEntry { claim, mode, lease, block, home, note };
                if let Err(refused) = self.enqueue(new, now) {
                    self.grant(now, grants);
                    return refused;
                }
                self.grant(now, grants);
                let refused = match (self.standing(claim, now), queue) {
                    (Some(granted @ Outcome::Granted(_)), _) => return granted,
                    (Some(Outcome::Spent), _) => Outcome::Spent,
                    (Some(queued), Queue::Enqueue) => return queued,
                    _ => Outcome::Busy,
                };
                self.remove(claim, 0);
                // A try of a queued claim removes that claim, which may have blocked one that fits.
                self.grant(now, grants);
                refused
            }
            Op::Join { claim, mode, lease, block, home, ref note } => {
                let new = NewEntry { claim, mode, lease, block, home, note };
                match self.enqueue(new, now) {
                    Ok(()) => self.standing(claim, now).unwrap_or(Outcome::NotFound),
                    Err(refused) => refused,
                }
            }
            Op::Renew { claim, mode, lease, is_last } => {
                if let Some(entry) = self.entry_mut(claim) {
                    if entry.token > 0 {
                        entry.weight = entry.weight.min(mode.weight());
                    }
                    entry.renew(now.saturating_add(lease), lease, is_last);
                }
                self.grant(now, grants);
                self.standing(claim, now).unwrap_or(Outcome::NotFound)
            }
            Op::Release { claim, used, bar } => {
                let found = self.remove(claim, used);
                self.tombstones.add(claim, bar, now);
                self.grant(now, grants);
                if found { Outcome::Released } else { Outcome::NotFound }
            }
            Op::Raise { above } => {
                self.raise(above);
                self.grant(now, grants);
                Outcome::Raised
            }
        }
    }

    /// Adds a claim to the queue. If it is already in the queue, its place gets a new lease.
    ///
    /// # Errors
    /// The outcome, if the claim has been cancelled or the lock has another capacity.
    fn enqueue(&mut self, new: NewEntry<'_>, now: Micros) -> Result<(), Outcome> {
        let NewEntry { claim, mode, lease, block, home, note } = new;
        // The request was sent before its cancellation, and arrives after it.
        if self.tombstones.has(claim) {
            return Err(Outcome::Late);
        }
        if let Some(entry) = self.entry_mut(claim) {
            // A retry of a granted claim gets the same grant, with the same lease.
            if entry.token == 0 {
                entry.expires = entry.expires.max(now.saturating_add(lease));
            }
            return Ok(());
        }
        if !self.entries.is_empty() && self.capacity != mode.capacity() {
            return Err(Outcome::Conflict { capacity: self.capacity });
        }
        self.capacity = mode.capacity();
        if self.entries.is_empty() {
            // Most locks have one holder and no waiter.
            self.entries.reserve_exact(1);
        }
        self.entries.push(Entry {
            claim,
            weight: mode.weight(),
            block: block.max(1),
            token: 0,
            lease,
            home,
            expires: now.saturating_add(lease),
            is_final: false,
            note: note.clone(),
        });
        Ok(())
    }

    /// Returns whether the first waiting claim fits: the next operation grants it.
    pub fn owes_a_grant(&self) -> bool {
        let mut room = u64::from(self.capacity);
        for entry in &self.entries {
            let Some(left) = room.checked_sub(u64::from(entry.weight)) else { return false };
            if entry.token == 0 {
                return self.tokens_for(entry.block, 0).is_some();
            }
            room = left;
        }
        false
    }

    /// Returns whether nobody holds the lock and nobody waits, at `now`.
    pub fn is_free(&self, now: Micros) -> bool {
        self.entries.iter().all(|e| e.expires <= now)
    }

    /// Returns whether, at `now`, a released or cancelled claim is barred.
    pub fn bars(&self, now: Micros) -> bool {
        self.tombstones.iter().any(|(_, until)| until > now)
    }

    /// The last reserved token; zero if none was reserved.
    pub const fn last_token(&self) -> u64 {
        self.last
    }

    /// The time at which the first lease expires, after which the lock may be granted.
    pub fn next_expiry(&self) -> Option<Micros> {
        self.entries.iter().map(|e| e.expires).min()
    }

    /// The grant of `claim`, if it holds the lock.
    pub fn grant_of(&self, claim: ClaimId) -> Option<Granted> {
        self.entries.iter().find(|e| e.claim == claim).and_then(Entry::granted)
    }

    /// The number of entries before `claim`, held and waiting; `None` if the claim is not found.
    pub fn ahead_of(&self, claim: ClaimId) -> Option<usize> {
        self.entries.iter().position(|e| e.claim == claim)
    }

    /// All grants, oldest first.
    pub fn grants(&self) -> impl Iterator<Item = Granted> + '_ {
        self.entries.iter().filter_map(Entry::granted)
    }

    /// Returns the state at `now`, as `inspect` reports it.
    pub fn inspect(&self, now: Micros) -> LockState {
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for entry in self.entries.iter().filter(|e| e.expires > now) {
            let token = FencingToken::new(entry.token).ok();
            let mode = Mode::from_weight(entry.weight, self.capacity);
            let remaining = Duration::from_micros(entry.expires - now);
            // Tokens begin at the clock's value. If a token had to be larger, its claim appears
            // younger.
            let age = token.and(now.checked_sub(entry.token)).map(Duration::from_micros);
            let state = ClaimState::new(entry.claim, mode, token, remaining)
                .with_age(age)
                .with_note(entry.note.clone());
            if token.is_some() { holders.push(state) } else { waiters.push(state) }
        }
        LockState::new(holders, waiters, FencingToken::new(self.last).ok())
    }

    /// Returns the first and the last token of a new block, unless too few tokens are left.
    fn tokens_for(&self, block: u32, now: Micros) -> Option<(u64, u64)> {
        let first = self.last.checked_add(1)?.max(now);
        let last = first.checked_add(u64::from(block - 1))?;
        (last <= FencingToken::MAX.get()).then_some((first, last))
    }

    /// Grants the longest prefix that fits and has enough tokens. It stops at the first claim that
    /// does not fit: a lighter claim behind it must not overtake it.
    fn grant(&mut self, now: Micros, grants: &mut Vec<Granted>) {
        let mut used = 0u64;
        for at in 0..self.entries.len() {
            used += u64::from(self.entries[at].weight);
            if used > u64::from(self.capacity) {
                break;
            }
            if self.entries[at].token == 0 {
                let tokens = self.tokens_for(self.entries[at].block, now);
                let Some((first, last)) = tokens else { break };
                self.last = last;
                let entry = &mut self.entries[at];
                entry.token = first;
                entry.expires = now.saturating_add(entry.lease);
                if let Some(granted) = entry.granted() {
                    grants.push(granted);
                }
            }
        }
    }

    /// Returns whether `claim` holds the lock, waits, or can never be granted because the tokens
    /// are used up. `None` if the claim is not found.
    fn standing(&self, claim: ClaimId, now: Micros) -> Option<Outcome> {
        let (ahead, entry) = self.entries.iter().enumerate().find(|(_, e)| e.claim == claim)?;
        Some(match entry.granted() {
            Some(granted) => Outcome::Granted(granted),
            None if self.tokens_for(entry.block, now).is_none() => Outcome::Spent,
            None => Outcome::Queued { ahead },
        })
    }

    /// Raises the last token to `above`. If the last block begins below `above`, `remove` could
    /// return its unused tokens, which would lower the last token again. So the last token then
    /// moves past the end of that block.
    fn raise(&mut self, above: u64) {
        let last = self.last;
        let returns = |e: &Entry| {
            let end = e.token.saturating_add(u64::from(e.block - 1));
            (1..above).contains(&e.token) && e.block > 1 && end == last
        };
        let past = if self.entries.iter().any(returns) { last.saturating_add(1) } else { last };
        self.last = past.max(above).min(FencingToken::MAX.get());
    }

    fn entry_mut(&mut self, claim: ClaimId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.claim == claim)
    }

    /// Removes an entry. The block's tokens after the `used` ones, which no client has seen, become
    /// available again if no later block is reserved. `used` is zero if it is not known: then none
    /// becomes available.
    fn remove(&mut self, claim: ClaimId, used: u32) -> bool {
        let found = self.entries.iter().enumerate().find(|(_, e)| e.claim == claim);
        let Some((at, entry)) = found else { return false };
        let end = entry.token.saturating_add(u64::from(entry.block - 1));
        if entry.token > 0 && (1..entry.block).contains(&used) && self.last == end {
            self.last = entry.token.saturating_add(u64::from(used - 1));
        }
        self.entries.remove(at);
        true
    }
}

/// Claims that were cancelled or released while a request for them may still be in flight, each
/// with the time in microseconds until which it can't come back. The list is short: it contains
/// claims whose connection was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tombstones(Vec<(ClaimId, u64)>);

impl Tombstones {
    const fn new() -> Self {
        Self(Vec::new())
    }

    /// Bars the claim: until then, requests that were sent for it have no effect.
    fn add(&mut self, claim: ClaimId, until: u64, now: u64) {
        match self.0.iter_mut().find(|(barred, _)| *barred == claim) {
            Some(barred) => barred.1 = barred.1.max(until),
            None if until > now => self.0.push((claim, until)),
            None => {}
        }
    }

    /// Removes the claims whose time has passed.
    fn forget(&mut self, now: u64) {
        self.0.retain(|(_, until)| *until > now);
    }

    fn has(&self, claim: ClaimId) -> bool {
        self.0.iter().any(|(barred, _)| *barred == claim)
    }

    fn iter(&self) -> impl Iterator<Item = (ClaimId, u64)> + '_ {
        self.0.iter().copied()
    }
}
