//! Records operations as they happen.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dlock_core::{Certainty, Error, Guard, Instant, Mode};
use parking_lot::Mutex;

use super::{Event, History, Op, Reply};
use crate::case::now;

/// Records the operations on one name as they happen.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    next: AtomicU64,
}

/// A guard, with the id of its acquisition.
#[derive(Debug)]
pub struct Held {
    /// The guard.
    pub guard: Guard,
    hold: u64,
    actor: usize,
}

impl Recorder {
    /// Returns an empty recorder.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Acquires a lock and records the result. Returns `None` if the lock is busy.
    ///
    /// # Errors
    /// The errors of the acquisition.
    pub async fn acquire(
        &self,
        actor: usize,
        mode: Mode,
        taking: impl Future<Output = Result<Option<Guard>, Error>>,
    ) -> Result<Option<Held>, Error> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        self.acquire_as(hold, actor, mode, taking).await
    }

    /// Returns the id of an acquisition, so that other events can refer to it before it is granted.
    pub fn announce(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Does the same as [`acquire`](Self::acquire), with an id from [`announce`](Self::announce).
    ///
    /// # Errors
    /// The errors of the acquisition.
    pub async fn acquire_as(
        &self,
        hold: u64,
        actor: usize,
        mode: Mode,
        taking: impl Future<Output = Result<Option<Guard>, Error>>,
    ) -> Result<Option<Held>, Error> {
        let event = self.begin(actor, hold, Op::Acquire(mode));
        let result = taking.await;
        self.end(
            event,
            match &result {
                Ok(Some(guard)) => Reply::Acked { token: Some(guard.token()), until: None },
                Ok(None) => Reply::Refused,
                Err(error) => unknown(error),
            },
        );
        Ok(result?.map(|guard| Held { guard, hold, actor }))
    }

    /// Records that an announced acquisition was seen in the queue.
    pub fn arrived(&self, hold: u64, actor: usize) {
        let event = self.begin(actor, hold, Op::Arrive);
        self.end(event, Reply::Acked { token: None, until: None });
    }

    /// Downgrades a lock from exclusive to shared, and records it.
    ///
    /// # Errors
    /// The errors of [`Guard::downgrade`].
    pub async fn downgrade(&self, held: &mut Held) -> Result<(), Error> {
        let event = self.begin(held.actor, held.hold, Op::Downgrade);
        let result = held.guard.downgrade().await;
        self.end(event, reply(&result));
        result
    }

    /// Releases a lock, and records it.
    ///
    /// # Errors
    /// The errors of [`Guard::release`].
    pub async fn release(&self, held: Held) -> Result<(), Error> {
        let event = self.begin(held.actor, held.hold, Op::Release);
        let result = held.guard.release().await.map(|_| ());
        self.end(event, reply(&result));
        result
    }

    /// Returns the recorded history.
    pub fn finish(&self) -> History {
        History { events: self.events.lock().clone(), ended: Some(now()) }
    }

    fn begin(&self, actor: usize, hold: u64, op: Op) -> usize {
        let mut events = self.events.lock();
        events.push(Event { actor, hold, op, invoked: now(), answer: None });
        events.len() - 1
    }

    fn end(&self, event: usize, reply: Reply) {
        // The time is taken before the mutex of the list, for which the task may have to wait.
        let answered: Instant = now();
        self.events.lock()[event].answer = Some((answered, reply));
    }
}

fn reply(result: &Result<(), Error>) -> Reply {
    match result {
        Ok(()) => Reply::Acked { token: None, until: None },
        Err(error) => unknown(error),
    }
}

fn unknown(error: &Error) -> Reply {
    match error.certainty() {
        Certainty::NotApplied => Reply::Refused,
        _ => Reply::Unknown,
    }
}
