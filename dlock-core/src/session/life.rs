//! The lease and the state of one claim of a session.
//!
//! # Concurrency
//!
//! The state changes under a mutex that is held only for a moment. `Left` is final. So if a claim is
//! released and lost at the same time, exactly one of the two is reported: a loss after the release
//! is no loss. `until_over` registers with `gone`, then reads the state. `leave` and `lose` change
//! the state, then notify. So an end is never missed.

use std::{fmt, time::Duration};

use crate::{
    AcquireRequest, ClaimId, Clock, FencingToken, Grant, Instant, LockName, Mode, Renewal,
    sync::{Mutex, Notify},
};

/// The lease and the state of one claim of a session.
pub struct Life {
    name: LockName,
    claim: ClaimId,
    details: Mutex<Details>,
    gone: Notify,
}

struct Details {
    mode: Mode,
    lease: Duration,
    until: Instant,
    tokens: u32,
    /// The token of its grant, once it has one.
    token: Option<FencingToken>,
    /// The number of callers that wait for its grant. While there is one, the lease does not end.
    waiting: usize,
    phase: Phase,
    /// It holds or has held the lock.
    held: bool,
    /// The last renewal has set the lease.
    is_final: bool,
    /// [`Life::start_watch`] has returned true.
    watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asked,
    Granted,
    /// It was released or cancelled. The task that did so deletes it in the store.
    Left,
    /// It was lost.
    Over,
}

impl Life {
    /// Begins with the lease of a request, from now on. A grant has at most `most_tokens` tokens.
    pub fn new(request: &AcquireRequest, most_tokens: u32) -> Self {
        let details = Details {
            mode: request.mode,
            lease: request.lease,
            until: Clock::Boot.now().saturating_add(request.lease),
            tokens: request.tokens.clamp(1, most_tokens.max(1)),
            token: None,
            waiting: 0,
            phase: Phase::Asked,
            held: false,
            is_final: false,
            watched: false,
        };
        let (name, claim) = (request.name.clone(), request.claim);
        Self { name, claim, details: Mutex::new(details), gone: Notify::new() }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the id of the claim.
    pub fn claim(&self) -> ClaimId {
        self.claim
    }

    /// Extends the lease for a request that is sent now, and returns its end.
    pub(super) fn touch(&self, lease: Duration) -> Instant {
        let mut details = self.details.lock();
        details.lease = details.lease.max(lease);
        details.extend(Clock::Boot.now().saturating_add(lease));
        details.until
    }

    /// If it holds the lock by the grant of this renewal, extends the lease to `until`, and returns
    /// the mode. Only the last renewal shortens the lease. After it, only another last renewal
    /// changes the end.
    pub(super) fn extend(&self, renewal: &Renewal, until: Instant) -> Option<Mode> {
        let mut details = self.details.lock();
        let is_of_another = renewal.token.is_some() && renewal.token != details.token;
        if details.phase != Phase::Granted || is_of_another {
            return None;
        }
        if renewal.is_last {
            details.until = if details.is_final { details.until.min(until) } else { until };
            details.is_final = true;
        } else {
            details.extend(until);
        }
        details.lease = details.lease.max(renewal.lease);
        Some(details.mode)
    }

    /// Records a grant, and restarts the lease. Returns the grant, and whether it is the first one.
    /// `None` if the claim has ended meanwhile.
    pub fn grant(&self, token: FencingToken, since: Instant) -> Option<(Grant, bool)> {
        let mut details = self.details.lock();
        if details.phase.has_ended() {
            return None;
        }
        let first = std::mem::replace(&mut details.phase, Phase::Granted) != Phase::Granted;
        (details.held, details.token) = (true, Some(token));
        let until = Clock::Boot.now().saturating_add(details.lease);
        if first {
            details.until = until;
        } else {
            details.extend(until);
        }
        Some((Grant::new(token, details.tokens, since), first))
    }

    /// Returns whether it holds the lock.
    pub fn is_granted(&self) -> bool {
        self.details.lock().phase == Phase::Granted
    }

    /// Returns whether it holds or has held the lock.
    pub fn was_granted(&self) -> bool {
        self.details.lock().held
    }

    /// Returns the rest of its lease. While a caller waits, this is the whole lease.
    pub fn remaining(&self, now: Instant) -> Duration {
        let details = self.details.lock();
        if details.waiting > 0 { details.lease } else { details.until.since(now) }
    }

    /// Returns the length of its lease.
    pub fn lease(&self) -> Duration {
        self.details.lock().lease
    }

    /// Returns its mode.
    pub fn mode(&self) -> Mode {
        self.details.lock().mode
    }

    /// Records a weaker mode.
    pub fn weakened(&self, mode: Mode) {
        self.details.lock().mode = mode;
    }

    /// Ends it as released or cancelled: the caller deletes it in the store. Returns true if it was
    /// lost before.
    pub fn leave(&self) -> bool {
        let before = std::mem::replace(&mut self.details.lock().phase, Phase::Left);
        self.gone.notify_waiters();
        before == Phase::Over
    }

    /// Returns whether it was released or cancelled.
    pub fn was_left(&self) -> bool {
        self.details.lock().phase == Phase::Left
    }

    /// Ends it as lost. Returns true if it was granted until now: then the caller reports the loss.
    pub(super) fn lose(&self) -> bool {
        self.details.lock().lose(&self.gone)
    }

    /// Ends it as lost if its lease has ended, and returns whether it was granted. `None` if the
    /// lease has not ended.
    pub(super) fn lapse(&self, now: Instant) -> Option<bool> {
        let mut details = self.details.lock();
        let lapsed = details.waiting == 0 && !details.phase.has_ended() && details.until <= now;
        lapsed.then(|| details.lose(&self.gone))
    }

    /// Returns whether it was released, cancelled or lost.
    pub fn is_over(&self) -> bool {
        self.details.lock().phase.has_ended()
    }

    /// Waits until it is over.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn until_over(&self) {
        let mut gone = std::pin::pin!(self.gone.notified());
        gone.as_mut().enable();
        if !self.is_over() {
            gone.await;
        }
    }

    /// Returns true once, for a claim that holds the lock: the caller then watches it in the store,
    /// where another client may delete it.
    pub fn start_watch(&self) -> bool {
        let mut details = self.details.lock();
        let starts = details.phase == Phase::Granted && !details.watched;
        details.watched |= starts;
        starts
    }

    /// Keeps its lease alive until the result is dropped, since a caller waits for the grant, or for
    /// the answer to its acquire.
    pub fn wait(&self) -> KeptAlive<'_> {
        self.details.lock().waiting += 1;
        KeptAlive(self)
    }
}

impl Phase {
    const fn has_ended(self) -> bool {
        matches!(self, Self::Left | Self::Over)
    }
}

impl Details {
    fn lose(&mut self, gone: &Notify) -> bool {
        if self.phase == Phase::Left {
            return false;
        }
        let before = std::mem::replace(&mut self.phase, Phase::Over);
        gone.notify_waiters();
        before == Phase::Granted
    }
}

impl Details {
    /// Moves the end of the lease to a later time, unless the last renewal has set it.
    fn extend(&mut self, until: Instant) {
        if !self.is_final {
            self.until = self.until.max(until);
        }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life")
            .field("name", &self.name)
            .field("claim", &self.claim)
            .field("state", &self.details.lock().phase)
            .finish_non_exhaustive()
    }
}

/// A caller waits for a claim: see [`Life::wait`]. When it is dropped, the lease restarts.
#[derive(Debug)]
#[must_use = "the claim's lease may end after this is dropped"]
pub struct KeptAlive<'a>(&'a Life);

impl Drop for KeptAlive<'_> {
    fn drop(&mut self) {
        let mut details = self.0.details.lock();
        details.waiting -= 1;
        let until = Clock::Boot.now().saturating_add(details.lease);
        details.extend(until);
    }
}
