//! The rules of a lock as one pure function: `(state, operation, store time) -> (state, grants)`.
//!
//! No I/O and no clock of its own. The memory backend runs it in place; the SQL backends run it
//! over the text of a row ([`text`]), the same on every client; the property tests and the
//! conformance kit check it.
//!
//! | kind | weight of a claim | capacity |
//! |---|---|---|
//! | mutex, writer | the whole capacity | 2^30 |
//! | reader | 1 | 2^30 |
//! | semaphore | its permits | the number of permits |
//!
//! Entries stand in the order in which they arrived. **Invariant**: the granted ones are a prefix
//! of the queue, the longest whose weights together fit the capacity. So it is first come, first
//! served, and neither readers nor writers nor heavy claims starve. [`Op::Join`] alone leaves a
//! grant that is due to the next operation, whoever's it is ([`Machine::owes_a_grant`]).

mod barred;
mod refused;
pub mod text;

#[cfg(test)]
mod tests;

use std::time::Duration;

use self::barred::Barred;
pub use self::refused::{conflict, spent};
use crate::{ClaimId, ClaimState, FencingToken, Format, LockState, Mode, Note, Queue};

/// Microseconds on the store's clock.
pub type Micros = u64;

/// The state of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The last token that was reserved.
    last: u64,
    /// Fixed by the first claim of a free lock.
    capacity: u32,
    entries: Vec<Entry>,
    barred: Barred,
}

/// One claim, waiting (`token` is zero) or held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    claim: ClaimId,
    weight: u32,
    /// How many tokens a grant reserves.
    block: u32,
    /// The first token of the grant.
    token: u64,
    lease: Micros,
    /// Whom to tell of a grant.
    home: u32,
    /// When the lease ends, of the grant or of the place in the queue.
    expires: Micros,
    /// Who it is, for people.
    note: Option<Note>,
    /// In which format its client writes.
    format: Format,
}

/// What a claim asks for.
struct Place<'a> {
    claim: ClaimId,
    mode: Mode,
    lease: Micros,
    block: u32,
    home: u32,
    note: &'a Option<Note>,
}

/// What happens to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Take it or wait for it.
    Acquire {
        /// Who.
        claim: ClaimId,
        /// What.
        mode: Mode,
        /// For how long.
        lease: Micros,
        /// How many tokens.
        block: u32,
        /// Whether to wait.
        queue: Queue,
        /// Whom a store that can should tell of a grant that comes later; 0 for nobody.
        home: u32,
        /// Who it is, for people; kept as long as the claim is there.
        note: Option<Note>,
    },
    /// Wait for it, and let nobody in, not even where nobody is in the way. So a store that loses
    /// this operation in a crash loses a place in a queue, and no grant that anybody believes in.
    Join {
        /// Who.
        claim: ClaimId,
        /// What.
        mode: Mode,
        /// For how long: the place in the queue, and then the lock.
        lease: Micros,
        /// How many tokens.
        block: u32,
        /// Whom a store that can should tell of the grant; 0 for nobody.
        home: u32,
        /// Who it is, for people; kept as long as the claim is there.
        note: Option<Note>,
    },
    /// Start the lease anew: of a grant, perhaps in a weaker mode, or of a place in the queue.
    Renew {
        /// Who.
        claim: ClaimId,
        /// What, from now on.
        mode: Mode,
        /// For how long from now.
        lease: Micros,
    },
    /// Give it up, held or waiting.
    Release {
        /// Who.
        claim: ClaimId,
        /// How many tokens were handed out; zero when it is not known.
        used: u32,
        /// Until then the claim can't come back: what asked for it before may still be on its way.
        /// Zero when all of that was answered.
        bar: Micros,
    },
    /// Have tokens above this one from now on.
    Raise {
        /// The token.
        above: u64,
    },
}

/// What an operation meant for its own claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is held.
    Granted(Granted),
    /// It waits behind so many entries.
    Queued {
        /// How many entries, held and waiting, stand before it.
        ahead: usize,
    },
    /// It did not get the lock and is not in the queue.
    Busy,
    /// The lock has another capacity while others hold or wait for it.
    Conflict {
        /// The capacity that it has.
        capacity: u32,
    },
    /// It does not hold the lock, nor can it: no token is left that is larger than the last one.
    /// One that was to be taken is not in the queue either.
    Spent,
    /// The claim was there and is gone.
    Released,
    /// The claim was not there.
    NotFound,
    /// Tokens are above what was asked for from now on.
    Raised,
    /// Nothing has happened: it came after its deadline, or after its claim was given up.
    Late,
}

/// A claim that holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Who.
    pub claim: ClaimId,
    /// The first token of its block.
    pub token: u64,
    /// How many tokens the block has.
    pub block: u32,
    /// When its lease began.
    pub since: Micros,
    /// Whom to tell; 0 for nobody.
    pub home: u32,
}

impl Op {
    /// Whose operation it is, if it is of a claim.
    pub const fn claim(&self) -> Option<ClaimId> {
        match *self {
            Self::Acquire { claim, .. }
            | Self::Join { claim, .. }
            | Self::Renew { claim, .. }
            | Self::Release { claim, .. } => Some(claim),
            Self::Raise { .. } => None,
        }
    }
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
}

impl Machine {
    /// A free lock whose next token is above `last`.
    pub const fn after_token(last: u64) -> Self {
        Self { last, capacity: 0, entries: Vec::new(), barred: Barred::new() }
    }

    /// The same for an operation that has to come by its deadline. Past that nothing happens, and
    /// a release is never past it: what it gives up, nobody takes again.
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
    /// Every claim that this grants, the operation's own and others', is appended to `grants`.
    pub fn apply(&mut self, op: &Op, now: Micros, grants: &mut Vec<Granted>) -> Outcome {
        self.entries.retain(|e| e.expires > now);
        self.barred.forget(now);
        match *op {
            Op::Acquire { claim, mode, lease, block, queue, home, ref note } => {
                let place = Place { claim, mode, lease, block, home, note };
                if let Err(refused) = self.stand(place, now) {
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
                // A claim that tries after it queued may have stood before one that fits.
                self.grant(now, grants);
                refused
            }
            Op::Join { claim, mode, lease, block, home, ref note } => {
                let place = Place { claim, mode, lease, block, home, note };
                match self.stand(place, now) {
                    Ok(()) => self.standing(claim, now).unwrap_or(Outcome::NotFound),
                    Err(refused) => refused,
                }
            }
            Op::Renew { claim, mode, lease } => {
                if let Some(entry) = self.entry_mut(claim) {
                    let expires = now.saturating_add(lease);
                    if entry.token == 0 {
                        entry.expires = entry.expires.max(expires);
                    } else {
                        entry.weight = entry.weight.min(mode.weight());
                        // One that comes late does not undo what a later one was told.
                        if now >= entry.expires.saturating_sub(entry.lease) {
                            (entry.expires, entry.lease) = (expires, lease);
                        }
                    }
                }
                self.grant(now, grants);
                self.standing(claim, now).unwrap_or(Outcome::NotFound)
            }
            Op::Release { claim, used, bar } => {
                let found = self.remove(claim, used);
                self.barred.add(claim, bar, now);
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

    /// Gives a claim a place in the queue, or its place a new lease.
    ///
    /// # Errors
    /// The outcome, when the claim has been given up or the lock has another capacity.
    fn stand(&mut self, place: Place<'_>, now: Micros) -> Result<(), Outcome> {
        let Place { claim, mode, lease, block, home, note } = place;
        if self.barred.has(claim) {
            return Err(Outcome::Late);
        }
        if let Some(entry) = self.entry_mut(claim) {
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
            // Most locks have one holder and nobody who waits.
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
            note: note.clone(),
            format: Format::OLDEST,
        });
        Ok(())
    }

    /// Whether a claim waits that nobody stands in the way of: the next operation lets it in.
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

    /// Whether nobody holds it and nobody waits, at `now`.
    pub fn is_free(&self, now: Micros) -> bool {
        self.entries.iter().all(|e| e.expires <= now)
    }

    /// Whether it remembers, at `now`, a claim that was given up and may still be asked for.
    pub fn bars(&self, now: Micros) -> bool {
        self.barred.iter().any(|(_, until)| until > now)
    }

    /// The last token that was reserved; zero if there was none.
    pub const fn last_token(&self) -> u64 {
        self.last
    }

    /// When the first of the leases ends, which may grant the lock to somebody.
    pub fn next_expiry(&self) -> Option<Micros> {
        self.entries.iter().map(|e| e.expires).min()
    }

    /// The grant of `claim`, if it holds the lock.
    pub fn grant_of(&self, claim: ClaimId) -> Option<Granted> {
        self.entries.iter().find(|e| e.claim == claim).and_then(Entry::granted)
    }

    /// How many entries, held and waiting, stand before `claim`; `None` if it is not there.
    pub fn ahead_of(&self, claim: ClaimId) -> Option<usize> {
        self.entries.iter().position(|e| e.claim == claim)
    }

    /// All grants, oldest first.
    pub fn grants(&self) -> impl Iterator<Item = Granted> + '_ {
        self.entries.iter().filter_map(Entry::granted)
    }

    /// What an onlooker sees at `now`.
    pub fn inspect(&self, now: Micros) -> LockState {
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for entry in self.entries.iter().filter(|e| e.expires > now) {
            let token = FencingToken::new(entry.token).ok();
            let mode = Mode::from_weight(entry.weight, self.capacity);
            let remaining = Duration::from_micros(entry.expires - now);
            // Tokens begin at the clock. One that had to be larger makes its claim look younger.
            let age = token.and(now.checked_sub(entry.token)).map(Duration::from_micros);
            let state = ClaimState::new(entry.claim, mode, token, remaining)
                .with_age(age)
                .with_note(entry.note.clone())
                .with_format(entry.format);
            if token.is_some() { holders.push(state) } else { waiters.push(state) }
        }
        LockState::new(holders, waiters, FencingToken::new(self.last).ok())
    }

    /// The first and the last of so many tokens, unless fewer are left.
    fn tokens_for(&self, block: u32, now: Micros) -> Option<(u64, u64)> {
        let first = self.last.checked_add(1)?.max(now);
        let last = first.checked_add(u64::from(block - 1))?;
        (last <= FencingToken::MAX.get()).then_some((first, last))
    }

    /// Grants the longest prefix that fits, as far as there are tokens for it.
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

    /// Where `claim` stands: it holds the lock, waits, or waits for a token that can't be, unless it
    /// is not there.
    fn standing(&self, claim: ClaimId, now: Micros) -> Option<Outcome> {
        let (ahead, entry) = self.entries.iter().enumerate().find(|(_, e)| e.claim == claim)?;
        Some(match entry.granted() {
            Some(granted) => Outcome::Granted(granted),
            None if self.tokens_for(entry.block, now).is_none() => Outcome::Spent,
            None => Outcome::Queued { ahead },
        })
    }

    /// Lifts the last token to `above`, and past the end of a block that reaches down below it and
    /// may be given back.
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

    /// Removes an entry; the tokens behind the `used` ones, which nobody saw, can be given out
    /// again.
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
