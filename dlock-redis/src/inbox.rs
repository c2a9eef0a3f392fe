//! The waiting claims of this client, and the messages about them.
//!
//! A release makes the next claim in the queue the holder, and sends one message to the channel of
//! its client. The message contains the grant: claim, token and server time. If a message is lost,
//! the next poll finds the grant. Polls also keep the places in the queues alive. One task polls
//! for all waiting claims of this client together (see [`minder`](crate::minder)).
//!
//! # Concurrency
//!
//! All state is in `book`, under its mutex. Four events about a claim come in any order: the answer
//! to its acquire (`placed`), its message (`receive`), its listener (`listen`) and its release
//! (`forget`). Each records its part, and the last of them completes the grant (`settle`). A
//! message needs the answer to a request before it counts, since only both together show when the
//! lease began.
//!
//! `due` reads the book and then waits for `sooner` without the lock. `notify_one` keeps one
//! notification for a task that does not wait yet, so a change between the two is not missed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use dlock_core::{AcquireRequest, ClaimId, Clock, Error, FencingToken, Grant, Instant};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::{keys::Bucket, reply::QueuePlace};

/// The longest time between two polls of a claim, whatever its lease. A lost message delays a grant
/// by no more than this.
const LONGEST: Duration = Duration::from_secs(3);

/// The waiting claims of one client.
pub(crate) struct Inbox {
    client: String,
    channel: Arc<str>,
    book: Mutex<WaitingClaims>,
    /// A claim is due earlier than all before.
    sooner: Notify,
}

#[derive(Default)]
struct WaitingClaims {
    waiting: HashMap<ClaimId, Waiting>,
    due: BTreeSet<(Instant, ClaimId)>,
    closed: bool,
}

/// One claim.
struct Waiting {
    request: AcquireRequest,
    /// When the last answered request was sent, and the server's time in its answer.
    heard: Option<(Instant, u64)>,
    /// A grant that no listener has taken yet.
    grant: Option<Pushed>,
    /// When to poll. `None` while its acquire or a poll is under way.
    due: Option<Instant>,
    listener: Option<oneshot::Sender<Result<Turn, Error>>>,
    /// Whether the claim was polled once without a listener. The second time it is forgotten, so
    /// that the place of an abandoned claim ends with its lease.
    forsaken: bool,
}

impl Waiting {
    fn new(request: &AcquireRequest, due: Option<Instant>) -> Self {
        let request = request.clone();
        Self { request, heard: None, grant: None, due, listener: None, forsaken: false }
    }
}

/// The contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pushed {
    token: FencingToken,
    /// The server's time of the grant, in microseconds.
    at: u64,
    received: Instant,
}

/// A grant for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) token: FencingToken,
    /// When the lease began, or earlier.
    pub(crate) since: Instant,
}

impl Turn {
    pub(crate) const fn grant(self, request: &AcquireRequest) -> Grant {
        Grant::new(self.token, request.tokens, self.since)
    }
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let client = format!("{:016x}", rand::random::<u64>());
        let channel = format!("dlock:i:{client}").into();
        Self { client, channel, book: Mutex::default(), sooner: Notify::new() }
    }

    /// Returns the channel of this client.
    pub(crate) fn channel(&self) -> Arc<str> {
        Arc::clone(&self.channel)
    }

    /// Returns the channel of this client for messages about a bucket's locks, in the slot of their
    /// keys.
    pub(crate) fn channel_of(&self, bucket: Bucket) -> String {
        format!("dlock:i:{}:{{{}}}", self.client, bucket.number())
    }

    /// Listens for a claim that is about to be sent, since its message may arrive before the
    /// answer. After the answer the caller calls [`placed`](Self::placed) or
    /// [`forget`](Self::forget).
    pub(crate) fn expect(&self, request: &AcquireRequest) {
        let mut book = self.book.lock();
        book.remove(request.claim);
        book.insert(Waiting::new(request, None));
    }

    /// Records that the server has answered a request that was sent at `sent`: the claim waits.
    pub(crate) fn placed(&self, claim: ClaimId, sent: Instant, place: QueuePlace) {
        let mut book = self.book.lock();
        let Some(waiting) = book.waiting.get_mut(&claim) else { return };
        waiting.heard = Some((sent, place.at));
        let third = waiting.request.lease / 3;
        // The first claim polls when the holder's lease ends, since no release and so no message
        // follows a lease that expires.
        let next = if place.first { place.next_end.min(third) } else { third };
        let due = sent.saturating_add(next.clamp(Duration::from_millis(1), LONGEST));
        let sooner = book.move_to(claim, due);
        book.settle(claim);
        drop(book);
        self.look_again(sooner);
    }

    /// Takes a grant whose message arrived while there was no listener.
    pub(crate) fn take(&self, claim: ClaimId) -> Option<Turn> {
        let mut book = self.book.lock();
        let waiting = book.waiting.get(&claim)?;
        let turn = turn(waiting.heard?, waiting.grant?);
        book.remove(claim);
        Some(turn)
    }

    /// Forgets a claim. Messages about it are ignored from now on.
    pub(crate) fn forget(&self, claim: ClaimId) {
        drop(self.book.lock().remove(claim));
    }

    /// Waits for the grant of a claim, or its error. If this is dropped, the claim keeps its place
    /// for one lease.
    pub(crate) async fn listen(&self, request: &AcquireRequest) -> Result<Turn, Error> {
        if let Some(turn) = self.take(request.claim) {
            return Ok(turn);
        }
        let receiver = self.listener_of(request);
        // The sender is dropped without an answer only if another task listens for the same claim.
        receiver.await.unwrap_or_else(|_| Err(gone()))
    }

    fn listener_of(&self, request: &AcquireRequest) -> oneshot::Receiver<Result<Turn, Error>> {
        let (sender, receiver) = oneshot::channel();
        let mut book = self.book.lock();
        if !book.waiting.contains_key(&request.claim) {
            let due = Some(Clock::Boot.now());
            book.insert(Waiting::new(request, due));
            self.look_again(true);
        }
        if let Some(waiting) = book.waiting.get_mut(&request.claim) {
            waiting.listener = Some(sender);
            book.settle(request.claim);
        }
        receiver
    }

    /// Processes a message: `CLAIM TOKEN MICROSECONDS`. One that can't be read is for another
    /// version.
    pub(crate) fn receive(&self, text: &[u8], received: Instant) {
        let Some((claim, token, at)) = read(text) else { return };
        let pushed = Pushed { token, at, received };
        let mut book = self.book.lock();
        let Some(waiting) = book.waiting.get_mut(&claim) else { return };
        waiting.grant = Some(pushed);
        book.settle(claim);
    }

    /// Makes all claims due, in batches: the connection was lost, and messages with it.
    pub(crate) fn reconnected(&self) {
        let now = Clock::Boot.now();
        let mut book = self.book.lock();
        // Claims with a request under way have no due time: its answer will show their state.
        let claims: Vec<ClaimId> = book.due.iter().map(|(_, claim)| *claim).collect();
        let mut sooner = false;
        for claim in claims {
            sooner |= book.move_to(claim, now);
        }
        drop(book);
        self.look_again(sooner);
    }

    /// Wakes the minder if a claim is due earlier than before.
    fn look_again(&self, sooner: bool) {
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Waits until a claim is due, and returns all claims that are due. They are due again once
    /// they are [placed](Self::placed). Returns an empty list after `close`.
    pub(crate) async fn due(&self) -> Vec<AcquireRequest> {
        loop {
            let next = {
                let mut book = self.book.lock();
                let due = book.take_due(Clock::Boot.now());
                if !due.is_empty() || book.closed {
                    return due;
                }
                book.due.first().map(|(at, _)| *at)
            };
            let wait = async {
                match next {
                    // Timers count whole milliseconds, and wake late rather than early.
                    Some(at) => Clock::Boot.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Gives the outcome to the listener of a claim. Without a listener it is dropped: a later
    /// listener polls the server again.
    pub(crate) fn tell(&self, claim: ClaimId, outcome: Result<Turn, Error>) {
        let told = self.book.lock().remove(claim);
        if let Some(listener) = told.and_then(|waiting| waiting.listener) {
            // A listener that stopped waiting meanwhile releases the claim.
            let _ = listener.send(outcome);
        }
    }

    /// Ends the minder, because the store is being dropped.
    pub(crate) fn close(&self) {
        self.book.lock().closed = true;
        self.sooner.notify_one();
    }
}

/// Returns the error of a claim that the server does not know any more.
pub(crate) fn gone() -> Error {
    Error::new(
        dlock_core::ErrorKind::NotHeld,
        "the claim expired while it waited in the queue: acquire the lock again",
    )
}

impl WaitingClaims {
    fn insert(&mut self, waiting: Waiting) {
        let claim = waiting.request.claim;
        self.due.extend(waiting.due.map(|due| (due, claim)));
        self.waiting.insert(claim, waiting);
    }

    fn remove(&mut self, claim: ClaimId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&claim)?;
        if let Some(due) = waiting.due {
            self.due.remove(&(due, claim));
        }
        Some(waiting)
    }

    /// Sets when to poll a claim. Returns true if that is before all others.
    fn move_to(&mut self, claim: ClaimId, due: Instant) -> bool {
        let Some(waiting) = self.waiting.get_mut(&claim) else { return false };
        if let Some(before) = waiting.due.replace(due) {
            self.due.remove(&(before, claim));
        }
        let sooner = self.due.first().is_none_or(|(first, _)| due < *first);
        self.due.insert((due, claim));
        sooner
    }

    /// Sends the grant to the listener, once both are present and the start of the lease is known.
    fn settle(&mut self, claim: ClaimId) {
        let Some(waiting) = self.waiting.get(&claim) else { return };
        let listens = waiting.listener.as_ref().is_some_and(|listener| !listener.is_closed());
        let (true, Some(heard), Some(pushed)) = (listens, waiting.heard, waiting.grant) else {
            return;
        };
        if let Some(listener) = self.remove(claim).and_then(|waiting| waiting.listener) {
            // If the listener stops at this moment, it releases the claim.
            let _ = listener.send(Ok(turn(heard, pushed)));
        }
    }

    fn take_due(&mut self, now: Instant) -> Vec<AcquireRequest> {
        let mut taken = Vec::new();
        while let Some((at, claim)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            let Some(waiting) = self.waiting.get_mut(&claim) else { continue };
            waiting.due = None;
            let heard = waiting.listener.as_ref().is_some_and(|listener| !listener.is_closed());
            if !heard && std::mem::replace(&mut waiting.forsaken, true) {
                // No listener wants it. Its place ends with its lease.
                self.waiting.remove(&claim);
                continue;
            }
            waiting.forsaken &= !heard;
            taken.push(waiting.request.clone());
        }
        taken
    }
}

/// Returns the grant of a message. Its lease began at `pushed.at` by the server's clock. Another
/// request was sent at `sent`, and its answer shows `at` by the same clock. The difference, counted
/// from `sent`, is never later than the true start. If the clock was stepped, the result may lie
/// before `sent` or after the message: then the grant gets the oldest possible start, and the
/// caller does not rely on it.
fn turn((sent, at): (Instant, u64), pushed: Pushed) -> Turn {
    let since =
        pushed.at.checked_sub(at).map(|after| sent.saturating_add(Duration::from_micros(after)));
    let since = since.filter(|since| *since <= pushed.received);
    Turn { token: pushed.token, since: since.unwrap_or(Instant::from_nanos(0)) }
}

pub(crate) fn read(text: &[u8]) -> Option<(ClaimId, FencingToken, u64)> {
    let mut parts = std::str::from_utf8(text).ok()?.split(' ');
    let claim = parts.next()?.parse().ok()?;
    let token = FencingToken::new(parts.next()?.parse().ok()?).ok()?;
    Some((claim, token, parts.next()?.parse().ok()?))
}
