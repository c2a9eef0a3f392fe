//! The rules of one lock of the toy store, and their faults.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, Clock, FencingToken, Grant, Instant, Mode, Note,
};

use crate::fault::Fault;

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
        for at in 0..self.entries.len() {
            if self.entries[at].token.is_some() {
                continue;
            }
            if !self.fits(at, fault) {
                match fault {
                    Fault::ReadersPassWriters | Fault::LightPassHeavy => continue,
                    _ => return,
                }
            }
            let shared = self.entries[at].mode == Mode::Shared && at > 0;
            let one_for_all = fault == Fault::OneTokenForAllReaders && shared;
            let last = self.last;
            let entry = &mut self.entries[at];
            let token = match fault {
                Fault::ResetsTokens | Fault::CountsTokens | Fault::ReusesExpiredBlocks => last + 1,
                Fault::RandomTokens => random(last),
                Fault::RepeatsTokens => last.max(1),
                _ if one_for_all => last,
                _ => (last + 1).max(now.as_nanos() / 1000),
            };
            entry.token = Some(token);
            match fault {
                Fault::LeaseFromTheQueue => {}
                Fault::LeaseFromTheTransaction => {
                    let began = now.saturating_sub(Duration::from_millis(200));
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

/// Returns a pseudo-random number that depends only on the last one.
fn random(last: u64) -> u64 {
    (last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 13) + 1
}

pub(crate) fn now() -> Instant {
    Clock::Boot.now()
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
