//! One claim of this client, from the first request to the end of its node.

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
    /// In which format its node is written.
    pub(crate) format: Format,
    /// Locked by whoever makes, renames or deletes the node, until the outcome is certain.
    pub(crate) stage: tokio::sync::Mutex<Stage>,
    life: Mutex<Life>,
    gone: Notify,
    /// The watch of its node from the time when it waited.
    watch: Mutex<Option<OwnWatch>>,
}

/// What is known of the node.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// It was not made yet.
    New,
    /// It is there.
    There(Spot),
    /// It was deleted.
    Gone,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// The lock's directory.
    pub(crate) dir: String,
    /// The node's name in it.
    pub(crate) child: String,
    /// When the claim came, in ZooKeeper's order.
    pub(crate) czxid: i64,
    /// What it wants or holds.
    pub(crate) mode: Mode,
    /// Its number is not in order, so the directory should go when it can.
    pub(crate) worn: bool,
    /// What to watch, as of the last list.
    pub(crate) watch: Option<Watch>,
}

/// A watch of the own node, and the name that it had.
///
/// It is kept until something happens to the node. Of a watcher that is dropped before, the driver
/// has the server remove the watch: a request more for each grant, and two for each release, where
/// the deletion has been told already.
pub(crate) struct OwnWatch {
    pub(crate) event: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
    pub(crate) child: String,
}

/// How long the claim lives without a sign of life.
struct Life {
    mode: Mode,
    lease: Duration,
    until: Instant,
    tokens: u32,
    /// How many wait for its grant just now.
    waiting: usize,
    state: State,
    /// It has held the lock.
    held: bool,
    /// Its node is being watched.
    watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Granted,
    /// It was given up: whoever did that sees to its node.
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

    /// Keeps the watch of its node for whoever asks for it next, or until the node has gone.
    pub(crate) fn keep_watch(&self, watch: OwnWatch) {
        *self.watch.lock() = Some(watch);
    }

    pub(crate) fn take_watch(&self) -> Option<OwnWatch> {
        self.watch.lock().take()
    }

    /// The lease starts anew, from now on: until when it lasts.
    pub(crate) fn touch(&self, lease: Duration) -> Instant {
        let mut life = self.life.lock();
        life.lease = lease;
        life.until = Clock::Boot.now().saturating_add(lease);
        life.until
    }

    /// If it holds the lock its lease starts anew, to last until then: what it holds.
    pub(crate) fn renew(&self, lease: Duration, until: Instant) -> Option<Mode> {
        let mut life = self.life.lock();
        if life.state != State::Granted {
            return None;
        }
        life.lease = lease;
        life.until = until;
        Some(life.mode)
    }

    /// It holds the lock, and its lease starts anew.
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

    /// Whether it has held the lock, with nobody beside it.
    pub(crate) fn was_alone(&self) -> bool {
        let life = self.life.lock();
        life.held && life.mode == Mode::Exclusive
    }

    /// How long it stays without a sign of life.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        let life = self.life.lock();
        if life.waiting > 0 { life.lease } else { life.until.since(now) }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.life.lock().lease
    }

    /// What its node holds, without a mark.
    pub(crate) fn data(&self) -> Data {
        Data::of(self.lease(), self.note.clone()).in_format(self.format)
    }

    /// What it wants or holds.
    pub(crate) fn mode(&self) -> Mode {
        self.life.lock().mode
    }

    /// It has become weaker.
    pub(crate) fn weakened(&self, mode: Mode) {
        self.life.lock().mode = mode;
    }

    /// It is given up. Whether it was lost before.
    pub(crate) fn leave(&self) -> bool {
        let before = std::mem::replace(&mut self.life.lock().state, State::Left);
        self.gone.notify_waiters();
        before == State::Over
    }

    pub(crate) fn was_left(&self) -> bool {
        self.life.lock().state == State::Left
    }

    /// It is lost. Whether it was granted, and nobody had given it up or told its end before.
    pub(crate) fn lose(&self) -> bool {
        self.life.lock().lose(&self.gone)
    }

    /// It is lost if its lease has ended; `None` if it has not.
    pub(crate) fn lapse(&self, now: Instant) -> Option<bool> {
        let mut life = self.life.lock();
        let lapsed = life.waiting == 0 && !life.state.has_ended() && life.until <= now;
        lapsed.then(|| life.lose(&self.gone))
    }

    /// Whether it was given up or lost.
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

    /// Whether its node is to be watched from now on: once, and only what is held.
    pub(crate) fn start_watch(&self) -> bool {
        let mut life = self.life.lock();
        let starts = life.state == State::Granted && !life.watched;
        life.watched |= starts;
        starts
    }

    /// Keeps its lease alive for as long as the answer lives.
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

/// Somebody waits for the grant of a claim, or for the answer to its acquire.
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
    fn what_is_over_is_not_granted_and_told_once() {
        let place = place(Duration::from_secs(1));
        assert!(place.grant(token(1).unwrap(), Instant::from_nanos(0)).is_some());
        assert!(place.start_watch() && !place.start_watch());
        assert!(place.lose() && !place.lose());
        assert!(place.grant(token(1).unwrap(), Instant::from_nanos(0)).is_none());
    }

    #[test]
    fn what_was_given_up_is_not_lost() {
        let place = place(Duration::from_secs(1));
        assert!(place.grant(token(1).unwrap(), Instant::from_nanos(0)).is_some());
        place.leave();
        assert!(!place.lose() && place.was_left() && place.is_over());
    }
}
