//! The waiting claims of this client, and the messages about them.
//!
//! A release makes the next claim in the queue the holder, and sends one message to the channel of
//! its client. The message contains the grant: claim, token and server time. If a message is lost,
//! the next poll finds the grant. Polls also keep the positions in the queues. One task polls
//! for all waiting claims of this client together (see [`wait`](crate::wait)).
//!
//! # Concurrency
//!
//! All state is in `table`, under its mutex. Four events about a claim come in any order: the answer
//! to its acquire (`queued`), its message (`receive`), its listener (`listen`) and its release
//! (`forget`). Each records its part, and the last of them completes the grant (`settle`). A
//! message needs the answer to a request before it counts, since only both together show when the
//! lease began.
//!
//! `due` reads the table and then waits for `sooner` without the lock. `notify_one` keeps one
//! notification for a task that does not wait yet, so a change between the two is not missed.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use dlock_core::{AcquireRequest, ClaimId, Clock, Error, FencingToken, Grant, Instant, LockName};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::{keys::Bucket, reply::QueuePosition};

/// The longest time between two polls of a claim, whatever its lease. A lost message delays a grant
/// by no more than this.
const LONGEST: Duration = Duration::from_secs(3);

/// The waiting claims of one client.
pub(crate) struct Waiters {
    client: String,
    channel: Arc<str>,
    table: Mutex<WaiterTable>,
    /// A claim is due earlier than all before.
    sooner: Notify,
}

#[derive(Default)]
struct WaiterTable {
    waiting: HashMap<ClaimId, Waiter>,
    due: BTreeSet<(Instant, ClaimId)>,
    closed: bool,
}

/// One claim.
struct Waiter {
    request: AcquireRequest,
    /// When the last answered request was sent, and the server's time in its answer.
    last_answer: Option<(Instant, u64)>,
    /// A grant that no listener has taken yet.
    grant: Option<GrantMessage>,
    /// When to poll. `None` while its acquire or a poll is under way.
    due: Option<Instant>,
    listener: Option<oneshot::Sender<Result<QueuedGrant, Error>>>,
    /// Whether the claim was polled once without a listener. The second time it is forgotten, so
    /// that the position of an abandoned claim ends with its lease.
    abandoned: bool,
}

impl Waiter {
    fn new(request: &AcquireRequest, due: Option<Instant>) -> Self {
        let request = request.clone();
        Self { request, last_answer: None, grant: None, due, listener: None, abandoned: false }
    }
}

/// The contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GrantMessage {
    token: FencingToken,
    /// The server's time of the grant, in microseconds.
    at: u64,
    received: Instant,
}

/// A grant for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedGrant {
    pub(crate) token: FencingToken,
    /// When the lease began, or earlier.
    pub(crate) since: Instant,
}

impl QueuedGrant {
    pub(crate) const fn into_grant(self, request: &AcquireRequest) -> Grant {
        Grant::new(self.token, request.tokens, self.since)
    }
}

impl Waiters {
    pub(crate) fn new() -> Self {
        let client = format!("{:016x}", rand::random::<u64>());
        let channel = format!("dlock:i:{client}").into();
        Self { client, channel, table: Mutex::default(), sooner: Notify::new() }
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
    /// answer. After the answer the caller calls [`queued`](Self::queued) or
    /// [`forget`](Self::forget).
    pub(crate) fn expect(&self, request: &AcquireRequest) {
        let mut table = self.table.lock();
        table.remove(request.claim);
        table.insert(Waiter::new(request, None));
    }

    /// Forgets these claims when the value is dropped, unless their acquire was answered.
    pub(crate) const fn until_answered<'a>(
        &'a self,
        requests: &'a [AcquireRequest],
    ) -> ExpectedClaims<'a> {
        ExpectedClaims { waiters: self, requests }
    }

    /// Records that the server has answered a request that was sent at `sent`: the claim waits.
    pub(crate) fn queued(&self, claim: ClaimId, sent: Instant, position: QueuePosition) {
        let mut table = self.table.lock();
        let Some(waiting) = table.waiting.get_mut(&claim) else { return };
        waiting.last_answer = Some((sent, position.at));
        let third = waiting.request.lease / 3;
        // The first claim polls when the holder's lease ends, since no release and so no message
        // follows a lease that expires.
        let next = if position.first { position.next_end.min(third) } else { third };
        let due = sent.saturating_add(next.clamp(Duration::from_millis(1), LONGEST));
        let sooner = table.move_to(claim, due);
        table.settle(claim);
        drop(table);
        self.wake_task(sooner);
    }

    /// Takes a grant whose message arrived while there was no listener.
    pub(crate) fn take(&self, claim: ClaimId) -> Option<QueuedGrant> {
        let mut table = self.table.lock();
        let waiting = table.waiting.get(&claim)?;
        let granted = queued_grant(waiting.last_answer?, waiting.grant?);
        table.remove(claim);
        Some(granted)
    }

    /// Forgets a claim. Messages about it are ignored from now on.
    pub(crate) fn forget(&self, claim: ClaimId) {
        drop(self.table.lock().remove(claim));
    }

    /// Waits for the grant of a claim, or its error. If this is dropped, the claim keeps its position
    /// for one lease.
    pub(crate) async fn listen(&self, request: &AcquireRequest) -> Result<QueuedGrant, Error> {
        if let Some(granted) = self.take(request.claim) {
            return Ok(granted);
        }
        let receiver = self.listener_of(request);
        // The sender is dropped without an answer only if another task listens for the same claim.
        receiver.await.unwrap_or_else(|_| Err(expired()))
    }

    fn listener_of(
        &self,
        request: &AcquireRequest,
    ) -> oneshot::Receiver<Result<QueuedGrant, Error>> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table.lock();
        if !table.waiting.contains_key(&request.claim) {
            let due = Some(Clock::Boot.now());
            table.insert(Waiter::new(request, due));
            self.wake_task(true);
        }
        if let Some(waiting) = table.waiting.get_mut(&request.claim) {
            waiting.listener = Some(sender);
            table.settle(request.claim);
        }
        receiver
    }

    /// Processes a message: `CLAIM TOKEN MICROSECONDS`. One that can't be read is for another
    /// version.
    pub(crate) fn receive(&self, text: &[u8], received: Instant) {
        let Some((claim, token, at)) = read(text) else { return };
        let message = GrantMessage { token, at, received };
        let mut table = self.table.lock();
        let Some(waiting) = table.waiting.get_mut(&claim) else { return };
        waiting.grant = Some(message);
        table.settle(claim);
    }

    /// Forgets answers and grants about these names that came over the last connection, since the
    /// next one may lead to another server: a grant of one and an answer of the other would show a
    /// wrong start of the lease.
    pub(crate) fn forget_answers(&self, about: impl Fn(&LockName) -> bool) {
        let mut table = self.table.lock();
        let waiting = table.waiting.values_mut();
        for waiting in waiting.filter(|waiting| about(&waiting.request.name)) {
            (waiting.last_answer, waiting.grant) = (None, None);
        }
    }

    /// Makes all claims due, in batches: the connection was lost, and messages with it.
    pub(crate) fn reconnected(&self) {
        let now = Clock::Boot.now();
        let mut table = self.table.lock();
        // Claims with a request under way have no due time: its answer will show their state.
        let claims: Vec<ClaimId> = table.due.iter().map(|(_, claim)| *claim).collect();
        let mut sooner = false;
        for claim in claims {
            sooner |= table.move_to(claim, now);
        }
        drop(table);
        self.wake_task(sooner);
    }

    /// Wakes the task if a claim is due earlier than before.
    fn wake_task(&self, sooner: bool) {
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Waits until a claim is due, and returns all claims that are due. They are due again once
    /// they are [queued](Self::queued). Returns an empty list after `close`.
    pub(crate) async fn due(&self) -> Vec<AcquireRequest> {
        loop {
            let next = {
                let mut table = self.table.lock();
                let due = table.take_due(Clock::Boot.now());
                if !due.is_empty() || table.closed {
                    return due;
                }
                table.due.first().map(|(at, _)| *at)
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
    pub(crate) fn finish(&self, claim: ClaimId, outcome: Result<QueuedGrant, Error>) {
        let waiting = self.table.lock().remove(claim);
        if let Some(listener) = waiting.and_then(|waiting| waiting.listener) {
            // A listener that stopped waiting meanwhile releases the claim.
            let _ = listener.send(outcome);
        }
    }

    /// Ends the task, because the store is being dropped.
    pub(crate) fn close(&self) {
        self.table.lock().closed = true;
        self.sooner.notify_one();
    }
}

/// Claims whose acquire has no answer yet: see [`Waiters::until_answered`].
pub(crate) struct ExpectedClaims<'a> {
    waiters: &'a Waiters,
    requests: &'a [AcquireRequest],
}

impl ExpectedClaims<'_> {
    /// Records that the server has answered the acquire.
    pub(crate) fn answered(mut self) {
        self.requests = &[];
    }
}

impl Drop for ExpectedClaims<'_> {
    fn drop(&mut self) {
        for request in self.requests {
            self.waiters.forget(request.claim);
        }
    }
}

/// Returns the error of a claim that the server does not know any more.
pub(crate) fn expired() -> Error {
    Error::new(
        dlock_core::ErrorKind::NotHeld,
        "the claim expired while it waited in the queue: acquire the lock again",
    )
}

impl WaiterTable {
    fn insert(&mut self, waiting: Waiter) {
        let claim = waiting.request.claim;
        self.due.extend(waiting.due.map(|due| (due, claim)));
        self.waiting.insert(claim, waiting);
    }

    fn remove(&mut self, claim: ClaimId) -> Option<Waiter> {
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
        let (true, Some(answer), Some(message)) = (listens, waiting.last_answer, waiting.grant)
        else {
            return;
        };
        if let Some(listener) = self.remove(claim).and_then(|waiting| waiting.listener) {
            // If the listener stops at this moment, it releases the claim.
            let _ = listener.send(Ok(queued_grant(answer, message)));
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
            let is_heard = waiting.listener.as_ref().is_some_and(|listener| !listener.is_closed());
            if !is_heard && std::mem::replace(&mut waiting.abandoned, true) {
                // No listener wants it. Its position ends with its lease.
                self.waiting.remove(&claim);
                continue;
            }
            waiting.abandoned &= !is_heard;
            taken.push(waiting.request.clone());
        }
        taken
    }
}

/// Returns the grant of a message. Its lease began at `message.at` by the server's clock. Another
/// request was sent at `sent`, and its answer shows `at` by the same clock. The difference, counted
/// from `sent`, is never later than the true start. If the clock was stepped, the result may lie
/// before `sent` or after the message: then the grant gets the oldest possible start, and the
/// caller does not rely on it.
fn queued_grant((sent, at): (Instant, u64), message: GrantMessage) -> QueuedGrant {
    let since =
        message.at.checked_sub(at).map(|after| sent.saturating_add(Duration::from_micros(after)));
    let since = since.filter(|since| *since <= message.received);
    QueuedGrant { token: message.token, since: since.unwrap_or(Instant::from_nanos(0)) }
}

pub(crate) fn read(text: &[u8]) -> Option<(ClaimId, FencingToken, u64)> {
    let mut parts = std::str::from_utf8(text).ok()?.split(' ');
    let claim = parts.next()?.parse().ok()?;
    let token = FencingToken::new(parts.next()?.parse().ok()?).ok()?;
    Some((claim, token, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use dlock_core::Mode;

    use super::*;

    #[test]
    fn grants_and_answers_of_two_connections_are_not_combined() {
        let waiters = Waiters::new();
        let name = LockName::new("a").unwrap();
        let request = AcquireRequest::new(name, Mode::Exclusive, Duration::from_secs(60));
        let (claim, sent) = (request.claim, Clock::Boot.now());
        let answer = |at| {
            waiters.queued(claim, sent, QueuePosition { first: true, next_end: Duration::MAX, at })
        };
        let message =
            |token| waiters.receive(format!("{claim} {token} 1000").as_bytes(), Clock::Boot.now());
        waiters.expect(&request);
        answer(1_000);
        message(7);
        waiters.forget_answers(|_| true);
        answer(1_000);
        assert_eq!(waiters.take(claim), None, "a grant of the former connection");
        waiters.forget_answers(|_| true);
        message(9);
        assert_eq!(waiters.take(claim), None, "an answer of the former connection");
        answer(1_000);
        assert_eq!(waiters.take(claim).map(|granted| granted.token.get()), Some(9));
    }
}
