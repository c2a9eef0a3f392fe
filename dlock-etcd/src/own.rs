//! One claim of this client, from the first request to the end of its key.
//!
//! # Concurrency
//!
//! Two locks protect a claim, and `stage` is always taken first:
//!
//! - The task that creates, changes or deletes the key holds `stage` until the outcome is certain,
//!   across awaits. So a release never misses a key whose creation is under way.
//! - `life` is held only for a moment, never across an await. `Left` is final. So if a claim is
//!   released and lost at the same time, exactly one of the two is reported.
//!
//! `until_over` registers with `gone`, then reads the state. `leave` and `lose` change the state,
//! then notify. So an end is never missed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, FencingToken, Format, Grant, Instant, LockName, Mode, Note,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    client::Bytes,
    guard::OwnWatch,
    key::{Keys, Kind, Place, TOKENS},
    places::Places,
    queue::Behind,
    record::Record,
};

/// A claim of a session.
pub(crate) struct OwnClaim {
    pub(crate) name: LockName,
    pub(crate) id: ClaimId,
    /// The prefix of the lock's keys, and the key of this claim.
    pub(crate) prefix: String,
    pub(crate) key: Bytes,
    /// The number of its place, which it gives back when it is dropped.
    number: u32,
    places: Arc<Places>,
    is_spoilt: AtomicBool,
    is_guarded: AtomicBool,
    /// The watch of its own key from the time when it waited, until its guard takes it.
    watch: Mutex<Option<OwnWatch>>,
    note: Option<Note>,
    format: Format,
    /// The state of the key.
    pub(crate) stage: tokio::sync::Mutex<Stage>,
    life: Mutex<Life>,
    gone: Notify,
}

/// The state of a claim's key, as far as this client knows.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The key was not created yet.
    New,
    /// The key exists.
    There(Spot),
    /// The key was deleted.
    Gone,
}

/// A key of this client.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// The revision at which it was created, which is its place in the queue.
    pub(crate) created: i64,
    /// The revision of its last change.
    pub(crate) modified: i64,
    /// The key that the claim waits for, according to the last read.
    pub(crate) behind: Option<Behind>,
}

/// The lease and the state of a claim.
struct Life {
    mode: Mode,
    lease: Duration,
    until: Instant,
    tokens: u32,
    /// The number of callers that wait for its grant. While there is one, the lease does not end.
    waiting: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Granted,
    /// It was released or cancelled. The task that did so deletes the key.
    Left,
    /// It was lost.
    Over,
}

impl OwnClaim {
    pub(crate) fn new(
        request: &AcquireRequest,
        keys: &Keys,
        lease: i64,
        places: &Arc<Places>,
        format: Format,
    ) -> Self {
        let prefix = keys.prefix(&request.name);
        let number = places.take(&prefix);
        Self {
            name: request.name.clone(),
            id: request.claim,
            key: Kind::of(request.mode).key(&prefix, Place::of(lease, number)).into(),
            prefix,
            number,
            places: Arc::clone(places),
            is_spoilt: AtomicBool::new(false),
            is_guarded: AtomicBool::new(false),
            watch: Mutex::default(),
            note: request.note.clone(),
            format,
            stage: tokio::sync::Mutex::new(Stage::New),
            life: Mutex::new(Life {
                mode: request.mode,
                lease: request.lease,
                until: Clock::Boot.now().saturating_add(request.lease),
                tokens: request.tokens.clamp(1, TOKENS),
                waiting: 0,
                state: State::Asked,
            }),
            gone: Notify::new(),
        }
    }

    /// Restarts the lease.
    pub(crate) fn touch(&self, lease: Duration) {
        let mut life = self.life.lock();
        life.lease = lease;
        life.until = Clock::Boot.now().saturating_add(lease);
    }

    /// If it holds the lock, restarts the lease, which then ends at `until`, and returns the mode.
    pub(crate) fn renew(&self, lease: Duration, until: Instant) -> Option<Mode> {
        let mut life = self.life.lock();
        if life.state != State::Granted {
            return None;
        }
        (life.lease, life.until) = (lease, until);
        Some(life.mode)
    }

    /// Records the grant, and restarts the lease. `None` if the claim has ended meanwhile. Also
    /// returns whether this is the first grant.
    pub(crate) fn grant(&self, token: FencingToken, since: Instant) -> Option<(Grant, bool)> {
        let mut life = self.life.lock();
        if life.state.has_ended() {
            return None;
        }
        let first = std::mem::replace(&mut life.state, State::Granted) != State::Granted;
        life.until = Clock::Boot.now().saturating_add(life.lease);
        Some((Grant::new(token, life.tokens, since), first))
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.life.lock().state == State::Granted
    }

    /// Returns the rest of its lease. While a caller waits, this is the whole lease.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        let life = self.life.lock();
        if life.waiting > 0 { life.lease } else { life.until.since(now) }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.life.lock().lease
    }

    pub(crate) fn mode(&self) -> Mode {
        self.life.lock().mode
    }

    /// Records a weaker mode.
    pub(crate) fn weakened(&self, mode: Mode) {
        self.life.lock().mode = mode;
    }

    /// Returns the value of its key in this mode.
    pub(crate) fn value(&self, mode: Mode) -> Bytes {
        let (lease, note) = (self.lease(), self.note.clone());
        let (claim, format) = (self.id, self.format.number().into());
        Record { mode, lease, claim, note, format }.text().into()
    }

    /// Returns true the first time: then the caller starts its [`guard`](crate::guard::guard).
    pub(crate) fn start_guard(&self) -> bool {
        !self.is_guarded.swap(true, Ordering::SeqCst)
    }

    /// Keeps a watch of its own key, which has reported nothing, for its guard.
    pub(crate) fn keep_watch(&self, watch: OwnWatch) {
        *self.watch.lock() = Some(watch);
    }

    pub(crate) fn take_watch(&self) -> Option<OwnWatch> {
        self.watch.lock().take()
    }

    /// Keeps its place from being used again, while its key may be there, or be deleted later.
    pub(crate) fn spoil(&self, is_spoilt: bool) {
        self.is_spoilt.store(is_spoilt, Ordering::SeqCst);
    }

    /// Ends it as released or cancelled. Returns true if it was lost before.
    pub(crate) fn leave(&self) -> bool {
        let before = std::mem::replace(&mut self.life.lock().state, State::Left);
        self.gone.notify_waiters();
        before == State::Over
    }

    pub(crate) fn was_left(&self) -> bool {
        self.life.lock().state == State::Left
    }

    /// Ends it as lost. Returns true if it was granted until now: then the caller reports the loss.
    pub(crate) fn lose(&self) -> bool {
        self.life.lock().lose(&self.gone)
    }

    /// Ends it as lost if its lease has ended. Returns `None` if it has not.
    pub(crate) fn lapse(&self, now: Instant) -> Option<bool> {
        let mut life = self.life.lock();
        let lapsed = life.waiting == 0 && !life.state.has_ended() && life.until <= now;
        lapsed.then(|| life.lose(&self.gone))
    }

    /// Returns whether it was released, cancelled or lost.
    pub(crate) fn is_over(&self) -> bool {
        self.life.lock().state.has_ended()
    }

    /// Waits until it is over.
    pub(crate) async fn until_over(&self) {
        let mut gone = std::pin::pin!(self.gone.notified());
        gone.as_mut().enable();
        if !self.is_over() {
            gone.await;
        }
    }

    /// Keeps its lease alive until the result is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.life.lock().waiting += 1;
        Waiting(self)
    }
}

impl Drop for OwnClaim {
    fn drop(&mut self) {
        if !self.is_spoilt.load(Ordering::SeqCst) {
            self.places.give_back(&self.prefix, self.number);
        }
    }
}

impl State {
    const fn has_ended(self) -> bool {
        matches!(self, Self::Left | Self::Over)
    }
}

impl Life {
    fn lose(&mut self, gone: &Notify) -> bool {
        if self.state == State::Left {
            return false;
        }
        let before = std::mem::replace(&mut self.state, State::Over);
        gone.notify_waiters();
        before == State::Granted
    }
}

/// A caller waits for the grant of a claim, or for the answer to its acquire.
pub(crate) struct Waiting<'a>(&'a OwnClaim);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut life = self.0.life.lock();
        life.waiting -= 1;
        life.until = Clock::Boot.now().saturating_add(life.lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::token;

    fn claim(lease: Duration) -> OwnClaim {
        let name = LockName::new("x").unwrap();
        let request = AcquireRequest::new(name, Mode::Exclusive, lease).with_tokens(TOKENS + 1);
        OwnClaim::new(&request, &Keys::below("/dlock"), 7, &Arc::default(), Format::OLDEST)
    }

    #[test]
    fn tokens_of_two_claims_do_not_meet() {
        let (a, b) = (token(7).unwrap(), token(8).unwrap());
        assert_eq!(b.get() - a.get(), u64::from(TOKENS));
        let (grant, first) = claim(Duration::ZERO).grant(a, Instant::from_nanos(0)).unwrap();
        assert_eq!((grant.token, grant.tokens, first), (a, TOKENS, true));
    }

    #[test]
    fn a_lease_does_not_end_while_a_caller_waits() {
        let claim = claim(Duration::ZERO);
        let waiting = claim.wait();
        let later = Clock::Boot.now().saturating_add(Duration::from_secs(1));
        assert_eq!(claim.lapse(later), None);
        drop(waiting);
        assert_eq!(claim.lapse(later), Some(false));
        assert_eq!(claim.lapse(later), None);
    }

    #[test]
    fn a_loss_is_reported_once_and_not_after_a_release() {
        let since = Instant::from_nanos(0);
        let (lost, left) = (claim(Duration::from_secs(1)), claim(Duration::from_secs(1)));
        for claim in [&lost, &left] {
            assert!(claim.grant(token(1).unwrap(), since).is_some());
        }
        assert!(lost.lose() && !lost.lose());
        assert!(lost.grant(token(1).unwrap(), since).is_none());
        assert!(!left.leave() && !left.lose() && left.was_left() && left.is_over());
    }
}
