//! The claims of this client that wait, and what is heard of them.
//!
//! A release makes the next claim in line the holder and sends one message to the channel of its
//! client. The message is the grant itself: what the server wrote when. A claim whose message got
//! lost is found out about by asking, which also keeps its place in the queue alive: one task asks
//! for all waiting claims of this client together (see [`minder`](crate::minder)).

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use dlock_core::{AcquireRequest, ClaimId, Clock, Error, FencingToken, Grant, Instant};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::{keys::Bucket, reply::Place};

/// The longest time until the next question, whatever the lease: how long a lost message can
/// delay a grant.
const LONGEST: Duration = Duration::from_secs(3);

/// The waiting claims of one client.
pub(crate) struct Inbox {
    client: String,
    channel: Arc<str>,
    book: Mutex<Book>,
    /// Somebody is due earlier than before.
    sooner: Notify,
}

#[derive(Default)]
struct Book {
    waiting: HashMap<ClaimId, Waiting>,
    due: BTreeSet<(Instant, ClaimId)>,
    closed: bool,
}

/// One claim.
struct Waiting {
    request: AcquireRequest,
    /// When the last answered question was sent, and the server's time when it was answered.
    heard: Option<(Instant, u64)>,
    /// A grant that nobody has asked for yet.
    grant: Option<Pushed>,
    /// When to ask about it; not while it is being sent or asked about.
    due: Option<Instant>,
    listener: Option<oneshot::Sender<Result<Turn, Error>>>,
    /// Whether it was kept alive once without a listener.
    forsaken: bool,
}

impl Waiting {
    fn new(request: &AcquireRequest, due: Option<Instant>) -> Self {
        let request = request.clone();
        Self { request, heard: None, grant: None, due, listener: None, forsaken: false }
    }
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pushed {
    token: FencingToken,
    /// The server's time of the grant, in microseconds.
    at: u64,
    received: Instant,
}

/// A grant for somebody who waits.
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

    /// The channel of this client.
    pub(crate) fn channel(&self) -> Arc<str> {
        Arc::clone(&self.channel)
    }

    /// The channel of this client for messages about a bucket's locks, in the slot of their keys.
    pub(crate) fn channel_of(&self, bucket: Bucket) -> String {
        format!("dlock:i:{}:{{{}}}", self.client, bucket.number())
    }

    /// Listens for a claim that is about to be sent: its grant may be heard of before the answer.
    /// Then comes [`placed`](Self::placed) or [`forget`](Self::forget).
    pub(crate) fn expect(&self, request: &AcquireRequest) {
        let mut book = self.book.lock();
        book.remove(request.claim);
        book.insert(Waiting::new(request, None));
    }

    /// The server has answered, to a question sent at this time, that the claim waits.
    pub(crate) fn placed(&self, claim: ClaimId, sent: Instant, place: Place) {
        let mut book = self.book.lock();
        let Some(waiting) = book.waiting.get_mut(&claim) else { return };
        waiting.heard = Some((sent, place.at));
        let third = waiting.request.lease / 3;
        let next = if place.first { place.next_end.min(third) } else { third };
        let due = sent.saturating_add(next.clamp(Duration::from_millis(1), LONGEST));
        let sooner = book.move_to(claim, due);
        book.settle(claim);
        drop(book);
        self.look_again(sooner);
    }

    /// A grant that was heard of and that nobody listened for.
    pub(crate) fn take(&self, claim: ClaimId) -> Option<Turn> {
        let mut book = self.book.lock();
        let waiting = book.waiting.get(&claim)?;
        let turn = turn(waiting.heard?, waiting.grant?);
        book.remove(claim);
        Some(turn)
    }

    /// Nothing more is to be heard of a claim.
    pub(crate) fn forget(&self, claim: ClaimId) {
        drop(self.book.lock().remove(claim));
    }

    /// Waits for what becomes of a claim. Dropped, the claim keeps its place for one lease.
    pub(crate) async fn listen(&self, request: &AcquireRequest) -> Result<Turn, Error> {
        if let Some(turn) = self.take(request.claim) {
            return Ok(turn);
        }
        let receiver = self.listener_of(request);
        // The sender goes only when somebody else asks for the same claim.
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

    /// A message has come: `CLAIM TOKEN MICROSECONDS`. What can't be read is not for this version.
    pub(crate) fn receive(&self, text: &[u8], received: Instant) {
        let Some((claim, token, at)) = read(text) else { return };
        let pushed = Pushed { token, at, received };
        let mut book = self.book.lock();
        let Some(waiting) = book.waiting.get_mut(&claim) else { return };
        waiting.grant = Some(pushed);
        book.settle(claim);
    }

    /// The connection was lost, and messages with it: everybody is asked about, a few at a time.
    pub(crate) fn reconnected(&self) {
        let now = Clock::Boot.now();
        let mut book = self.book.lock();
        // Not the ones that are being sent or asked about just now.
        let claims: Vec<ClaimId> = book.due.iter().map(|(_, claim)| *claim).collect();
        let mut sooner = false;
        for claim in claims {
            sooner |= book.move_to(claim, now);
        }
        drop(book);
        self.look_again(sooner);
    }

    /// The next look is sooner than before.
    fn look_again(&self, sooner: bool) {
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Waits until somebody is due, and takes all who are. They are due again once
    /// [placed](Self::placed). Nobody, once it is closed.
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

    /// Tells who waits for a claim what has become of it. Nobody may: who asks later makes the
    /// server be asked again.
    pub(crate) fn tell(&self, claim: ClaimId, outcome: Result<Turn, Error>) {
        let told = self.book.lock().remove(claim);
        if let Some(listener) = told.and_then(|waiting| waiting.listener) {
            // Who does not listen any more releases the claim.
            let _ = listener.send(outcome);
        }
    }

    /// Nobody wants to hear anything any more.
    pub(crate) fn close(&self) {
        self.book.lock().closed = true;
        self.sooner.notify_one();
    }
}

/// The error of a claim that the server does not know any more.
pub(crate) fn gone() -> Error {
    Error::new(
        dlock_core::ErrorKind::NotHeld,
        "the claim expired while it waited in the queue: acquire the lock again",
    )
}

impl Book {
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

    /// Sets when to ask about a claim; whether that is before all others.
    fn move_to(&mut self, claim: ClaimId, due: Instant) -> bool {
        let Some(waiting) = self.waiting.get_mut(&claim) else { return false };
        if let Some(before) = waiting.due.replace(due) {
            self.due.remove(&(before, claim));
        }
        let sooner = self.due.first().is_none_or(|(first, _)| due < *first);
        self.due.insert((due, claim));
        sooner
    }

    /// Hands a grant to the listener, once there are both and it is known when the lease began.
    fn settle(&mut self, claim: ClaimId) {
        let Some(waiting) = self.waiting.get(&claim) else { return };
        let listens = waiting.listener.as_ref().is_some_and(|listener| !listener.is_closed());
        let (true, Some(heard), Some(pushed)) = (listens, waiting.heard, waiting.grant) else {
            return;
        };
        if let Some(listener) = self.remove(claim).and_then(|waiting| waiting.listener) {
            // It may stop listening just now: then it releases the claim.
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
                // Nobody wants it: its place ends with its lease.
                self.waiting.remove(&claim);
                continue;
            }
            waiting.forsaken &= !heard;
            taken.push(waiting.request.clone());
        }
        taken
    }
}

/// When a lease began that the server granted at one time by its clock, where another time by its
/// clock was that of the answer to a question sent then. A clock that does not step gives a time
/// between that question and the message; any other is not trusted, and the grant looks very old.
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
