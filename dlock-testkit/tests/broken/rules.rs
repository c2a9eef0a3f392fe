//! The rules of one lock of the toy store, and their faults.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, Clock, FencingToken, Grant, Instant, Mode, Note, Renewal,
};

use crate::fault::Fault;

/// The time by which faults shift a lease. It is longer than a machine stalls between the end of a
/// lease and the next look of a case, and shorter than the leases that cases let expire.
pub(crate) const SHIFT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    /// The next change grants no claim.
    pub(crate) stuck: bool,
    pub(crate) last: u64,
    pub(crate) entries: Vec<Entry>,
    /// The time of the first request.
    pub(crate) began: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: ClaimId,
    pub(crate) mode: Mode,
    pub(crate) lease: Duration,
    pub(crate) since: Instant,
    /// The time at which it was granted, or else joined the queue.
    pub(crate) came: Instant,
    pub(crate) until: Instant,
    /// Whether the last renewal has set `until`.
    pub(crate) is_final: bool,
    pub(crate) block: u32,
    pub(crate) token: Option<u64>,
    /// The client that sent it.
    pub(crate) client: u64,
    pub(crate) note: Option<Note>,
}

impl Lock {
    pub(crate) fn find(&mut self, id: ClaimId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    pub(crate) fn join(&mut self, request: &AcquireRequest, fault: Fault, now: Instant) {
        let lease = stored(request.lease, fault);
        let entry = Entry {
            id: request.claim,
            mode: request.mode,
            lease,
            since: now,
            came: now,
            until: now.saturating_add(lease),
            is_final: false,
            block: request.tokens,
            token: None,
            client: 0,
            note: request.note.clone(),
        };
        self.began.get_or_insert(now);
        let held = self.entries.iter().filter(|entry| entry.token.is_some()).count();
        let at = if fault == Fault::LastComeFirstServed { held } else { self.entries.len() };
        self.entries.insert(at, entry);
    }

    pub(crate) fn requeue(&mut self, id: ClaimId) {
        if let Some(at) = self.entries.iter().position(|entry| entry.id == id) {
            let entry = self.entries.remove(at);
            self.entries.push(Entry { token: None, ..entry });
        }
    }

    pub(crate) fn end_leases(&mut self, fault: Fault, now: Instant) {
        if fault == Fault::ReusesExpiredBlocks {
            let ended = self.entries.iter().filter(|entry| entry.until <= now);
            self.last = ended.filter_map(|entry| entry.token).max().unwrap_or(self.last);
        }
        self.entries.retain(|entry| match fault {
            Fault::NeverExpiresLeases => true,
            Fault::KeepsDeadWaiters if entry.token.is_none() => true,
            _ => entry.until > now,
        });
    }

    pub(crate) fn grant(&mut self, fault: Fault, now: Instant) {
        if std::mem::take(&mut self.stuck) {
            return;
        }
        let began = self.began.unwrap_or(now).as_nanos() / 1000;
        for at in 0..self.entries.len() {
            if self.entries[at].token.is_some() {
                continue;
            }
            if !self.fits(at, fault) {
                match fault {
                    Fault::ReadersPassWriters | Fault::LightPassHeavy | Fault::ReentersByClient => {
                        continue;
                    }
                    _ => return,
                }
            }
            let shared = self.entries[at].mode == Mode::Shared && at > 0;
            let one_for_all = fault == Fault::OneTokenForAllReaders && shared;
            let last = self.last;
            let entry = &mut self.entries[at];
            // Only the first token of a record follows the clock. If each one did, tokens that a
            // fault repeats would be passed over on a slow machine.
            let next = (last + 1).max(began);
            let token = match fault {
                Fault::ResetsTokens | Fault::CountsTokens => last + 1,
                Fault::RandomTokens => random(last),
                Fault::RepeatsTokens => last.max(1),
                Fault::TokensAreDoubles => as_double(next),
                _ if one_for_all => last,
                _ => next,
            };
            entry.token = Some(token);
            match fault {
                Fault::LeaseFromTheQueue => {}
                Fault::LeaseFromTheTransaction => {
                    let began = now.saturating_sub(SHIFT);
                    entry.until = began.saturating_add(entry.lease);
                }
                _ => entry.until = now.saturating_add(entry.lease),
            }
            (entry.since, entry.came) = (now, now);
            let block = if fault == Fault::BlocksOverlap { 1 } else { u64::from(entry.block) };
            self.last = token + block - 1;
        }
    }

    fn fits(&self, at: usize, fault: Fault) -> bool {
        let Entry { mode: mine, client, .. } = self.entries[at];
        let ours = |entry: &Entry| fault == Fault::ReentersByClient && entry.client == client;
        let held = self.entries.iter().filter(|entry| entry.token.is_some() && !ours(entry));
        let mut others = held.map(|entry| entry.mode);
        let one = |n: u32| if fault == Fault::WeightsIgnored { 1 } else { n };
        match mine {
            Mode::Shared => others.all(|other| other == Mode::Shared),
            Mode::Permits { n, of } => {
                let used: u32 = others.map(|o| one(o.weight())).sum();
                used + one(n) <= of
            }
            _ => match fault {
                Fault::WriterBesideReaders => others.all(|other| other == Mode::Shared),
                Fault::TwoHolders => others.count() < 2,
                _ => others.next().is_none(),
            },
        }
    }

    /// Extends the leases of all holders.
    pub(crate) fn extend_all(&mut self, until: Instant) {
        for entry in self.entries.iter_mut().filter(|entry| entry.token.is_some()) {
            entry.until = entry.until.max(until);
        }
    }

    /// Returns the age of a claim.
    pub(crate) fn age(&self, entry: &Entry, fault: Fault, now: Instant) -> Duration {
        now.since(match (fault, self.began) {
            (Fault::AgeOfTheLease, _) => entry.since,
            (Fault::AgeOfTheLock, Some(began)) => began,
            _ => entry.came,
        })
    }

    /// Returns the note that `inspect` shows for a claim.
    pub(crate) fn note(&self, entry: &Entry, fault: Fault) -> Option<Note> {
        match fault {
            Fault::OneNoteForAll => self.entries.first()?.note.clone(),
            Fault::WaitersWithoutNotes => entry.note.clone().filter(|_| entry.token.is_some()),
            Fault::FoldsNotes => Note::new(&entry.note.as_ref()?.as_str().replace('é', "e")).ok(),
            _ => entry.note.clone(),
        }
    }

    pub(crate) fn new_token(&mut self, id: ClaimId) {
        self.last += 1;
        let last = self.last;
        if let Some(entry) = self.find(id).filter(|entry| entry.token.is_some()) {
            entry.token = Some(last);
        }
    }

    /// Takes back the unused tokens of a block, so that they may be granted again.
    pub(crate) fn take_back(&mut self, released: &Entry, used: u32, fault: Fault) {
        let Some(token) = released.token else { return };
        let end = token + u64::from(released.block) - 1;
        let takes_back = matches!(fault, Fault::None | Fault::ReleasedBlockLowersTokens);
        if takes_back && self.last == end && (1..released.block).contains(&used) {
            self.last = token + u64::from(used) - 1;
        }
    }
}

impl Entry {
    /// Renews the lease of a holder.
    pub(crate) fn renew(&mut self, lease: Duration, is_last: bool, fault: Fault, now: Instant) {
        let lease = stored(lease, fault);
        let until = now.saturating_add(lease);
        let is_final = self.is_final && fault != Fault::RenewsAfterTheLastRenewal;
        match (is_last, is_final) {
            _ if fault == Fault::LastRenewalToArriveWins => self.until = until,
            (false, false) => self.until = self.until.max(until),
            (false, true) => {}
            (true, false) => self.until = until,
            (true, true) => self.until = self.until.min(until),
        }
        self.is_final |= is_last;
        (self.since, self.lease) = (now, self.lease.max(lease));
    }

    /// Returns whether it holds the lock by another grant than that of the renewal.
    pub(crate) fn is_of_another(&self, renewal: &Renewal) -> bool {
        let both = self.token.zip(renewal.token);
        both.is_some_and(|(own, token)| own != token.get())
    }

    pub(crate) fn grant(&self) -> Option<Grant> {
        let token = FencingToken::new(self.token?).ok()?;
        Some(Grant::new(token, self.block, self.since))
    }
}

/// Returns the lease of a claim as the store keeps it.
fn stored(lease: Duration, fault: Fault) -> Duration {
    match fault {
        Fault::LongLeasesWrap => {
            let micros = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
            Duration::from_micros(micros & u64::from(u32::MAX))
        }
        _ => lease,
    }
}

/// Returns several renewals as the store applies them.
pub(crate) fn applied(renewals: &[Renewal], fault: Fault) -> Vec<Renewal> {
    let mut applied = renewals.to_vec();
    let Some(first) = renewals.first() else { return applied };
    let shortest = renewals.iter().map(|renewal| renewal.lease).min().unwrap_or(first.lease);
    let is_last = renewals.iter().any(|renewal| renewal.is_last);
    for renewal in &mut applied {
        match fault {
            Fault::BatchHasTheFirstLease => renewal.lease = first.lease,
            Fault::BatchHasTheShortestLease => renewal.lease = shortest,
            Fault::BatchHasTheFirstMode => renewal.mode = first.mode,
            Fault::BatchIsLastAsAWhole => renewal.is_last = is_last,
            Fault::RenewsAnyGrantInBatches if renewals.len() > 1 => renewal.token = None,
            _ => {}
        }
    }
    applied
}

/// Returns the number that a double has for it: up to 2^54, every second one beyond 2^53.
fn as_double(number: u64) -> u64 {
    if number > 1 << 53 { number & !1 } else { number }
}

/// Returns a pseudo-random number that depends only on the last one.
fn random(last: u64) -> u64 {
    (last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 13) + 1
}

pub(crate) fn now() -> Instant {
    Clock::Boot.now()
}

/// Lets the polls of a case pass that are late, each by less than a stall of the machine.
pub(crate) async fn read_late() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

/// Returns the answer with a lease that begins now.
pub(crate) fn read_now(acquired: Acquired) -> Acquired {
    match acquired {
        Acquired::Granted(grant) => Acquired::Granted(Grant::new(grant.token, grant.tokens, now())),
        other => other,
    }
}

/// Returns the answer with a lease that begins later by this duration.
pub(crate) fn later(acquired: Acquired, by: Duration) -> Acquired {
    match acquired {
        Acquired::Granted(grant) => {
            Acquired::Granted(Grant::new(grant.token, grant.tokens, grant.since.saturating_add(by)))
        }
        other => other,
    }
}
