//! One claim of this client, from the first request to the end of its node.
//!
//! # Concurrency
//!
//! Two locks protect a place, and `stage` is always taken first:
//!
//! - The task that creates, renames or deletes the node holds `stage` until the outcome is certain,
//!   across awaits. So a release never looks for a node whose creation is under way, and the client
//!   always knows the name of its node.
//! - `life` is held only for a moment, never across an await. `Left` is final. So if a claim is
//!   released and lost at the same time, exactly one of the two is reported: a loss after the
//!   release is no loss.
//!
//! `until_over` registers with `gone`, then reads the state. `leave` and `lose` change the state,
//! then notify. So an end is never missed.

use std::{pin::Pin, time::Duration};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, FencingToken, Format, Grant, Instant, LockName, Mode, Note,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use zookeeper_client::WatchedEvent;

use crate::{data::Data, queue::Watch, token::TOKENS};

/// A claim of a session.
pub(crate) struct Place {
    pub(crate) name: LockName,
    pub(crate) claim: ClaimId,
    pub(crate) note: Option<Note>,
    /// The format in which its node is written.
    pub(crate) format: Format,
    /// The state of the node.
    pub(crate) stage: tokio::sync::Mutex<Stage>,
    life: Mutex<Life>,
    gone: Notify,
    /// The watch of its own node, left from the time when it waited.
    watch: Mutex<Option<OwnWatch>>,
}

/// The state of a claim's node, as far as this client knows.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The node was not created yet.
    New,
    /// The node exists.
    There(Spot),
    /// The node was deleted.
    Gone,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// The lock's directory.
    pub(crate) dir: String,
    /// The node's name in it.
    pub(crate) child: String,
    /// The zxid of the claim's creation, which is its time in ZooKeeper's order.
    pub(crate) czxid: i64,
    /// The mode of the claim.
    pub(crate) mode: Mode,
    /// Its number is not in order, so the directory should be removed when it is empty.
    pub(crate) worn: bool,
    /// The node to watch, according to the last list.
    pub(crate) watch: Option<Watch>,
}

/// A watch of the claim's own node, and the name that the node had.
///
/// It is kept until the node changes. If a watcher is dropped before, the driver makes the server
/// remove the watch. That would cost one more request for each grant, and two for each release,
/// although the deletion ends the watch anyway.
pub(crate) struct OwnWatch {
    pub(crate) event: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
    pub(crate) child: String,
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
    /// It holds or has held the lock.
    held: bool,
    /// Its node is watched.
    watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Granted,
    /// It was released or cancelled. The task that did so deletes the node.
    Left,
    /// It was lost.
    Over,
}

impl Place {
    pub(crate) fn new(request: &AcquireRequest, format: Format) -> Self {
        Self {
            name: request.name.clone(),
            claim: request.claim,
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
                held: false,
                watched: false,
            }),
            gone: Notify::new(),
            watch: Mutex::default(),
        }
    }

    /// Keeps the watch of its node for the next caller that needs it.
    pub(crate) fn keep_watch(&self, watch: OwnWatch) {
        *self.watch.lock() = Some(watch);
    }

    pub(crate) fn take_watch(&self) -> Option<OwnWatch> {
        self.watch.lock().take()
    }

    /// Restarts the lease, and returns its end.
    pub(crate) fn touch(&self, lease: Duration) -> Instant {
        let mut life = self.life.lock();
        life.lease = lease;
        life.until = Clock::Boot.now().saturating_add(lease);
        life.until
    }

    /// If it holds the lock, restarts the lease, which then ends at `until`, and returns the mode.
    pub(crate) fn renew(&self, lease: Duration, until: Instant) -> Option<Mode> {
        let mut life = self.life.lock();
        if life.state != State::Granted {
            return None;
        }
        life.lease = lease;
        life.until = until;
        Some(life.mode)
    }

    /// Records the grant, and restarts the lease. `None` if the claim has ended meanwhile.
    pub(crate) fn grant(&self, token: FencingToken, since: Instant) -> Option<Grant> {
        let mut life = self.life.lock();
        if life.state.has_ended() {
            return None;
        }
        life.state = State::Granted;
        life.held = true;
        life.until = Clock::Boot.now().saturating_add(life.lease);
        Some(Grant::new(token, life.tokens, since))
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.life.lock().state == State::Granted
    }

    /// Returns whether it holds or has held the lock exclusively.
    pub(crate) fn was_alone(&self) -> bool {
        let life = self.life.lock();
        life.held && life.mode == Mode::Exclusive
    }

    /// Returns the rest of its lease. While a caller waits, this is the whole lease.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        let life = self.life.lock();
        if life.waiting > 0 { life.lease } else { life.until.since(now) }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.life.lock().lease
    }

    /// Returns the data of its node, without a mark.
    pub(crate) fn data(&self) -> Data {
        Data::of(self.lease(), self.note.clone()).in_format(self.format)
    }

    /// Returns the mode of the claim.
    pub(crate) fn mode(&self) -> Mode {
        self.life.lock().mode
    }

    /// Records a weaker mode.
    pub(crate) fn weakened(&self, mode: Mode) {
        self.life.lock().mode = mode;
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

    /// Returns true once, for a claim that holds the lock: the caller then watches its node.
    pub(crate) fn start_watch(&self) -> bool {
        let mut life = self.life.lock();
        let starts = life.state == State::Granted && !life.watched;
        life.watched |= starts;
        starts
    }

    /// Keeps its lease alive until the result is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.life.lock().waiting += 1;
        Waiting(self)
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
pub(crate) struct Waiting<'a>(&'a Place);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut life = self.0.life.lock();
        life.waiting -= 1;
        life.until = Clock::Boot.now().saturating_add(life.lease);
    }
}

impl Spot {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.dir, self.child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::token;

    fn place(lease: Duration) -> Place {
        Place::new(
            &AcquireRequest::new(LockName::new("x").unwrap(), Mode::Exclusive, lease)
                .with_tokens(TOKENS + 1),
            Format::OLDEST,
        )
    }

    #[test]
    fn tokens_of_two_nodes_do_not_meet() {
        let (a, b) = (token(7).unwrap(), token(8).unwrap());
        assert_eq!(b.get() - a.get(), u64::from(TOKENS));
        let grant = place(Duration::ZERO).grant(a, Instant::from_nanos(0)).unwrap();
        assert_eq!((grant.token, grant.tokens), (a, TOKENS));
    }

    #[test]
    fn a_lease_does_not_end_while_somebody_waits() {
        let place = place(Duration::ZERO);
        let waiting = place.wait();
        let later = Clock::Boot.now().saturating_add(Duration::from_secs(1));
        assert_eq!(place.lapse(later), None);
        drop(waiting);
        assert_eq!(place.lapse(later), Some(false));
        assert_eq!(place.lapse(later), None);
    }

    #[test]
    fn an_ended_claim_is_not_granted_and_reported_once() {
        let place = place(Duration::from_secs(1));
        assert!(place.grant(token(1).unwrap(), Instant::from_nanos(0)).is_some());
        assert!(place.start_watch() && !place.start_watch());
        assert!(place.lose() && !place.lose());
        assert!(place.grant(token(1).unwrap(), Instant::from_nanos(0)).is_none());
    }

    #[test]
    fn a_released_claim_is_not_lost() {
        let place = place(Duration::from_secs(1));
        assert!(place.grant(token(1).unwrap(), Instant::from_nanos(0)).is_some());
        place.leave();
        assert!(!place.lose() && place.was_left() && place.is_over());
    }
}
