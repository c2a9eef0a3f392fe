//! Writes operations down as they happen.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dlock_core::{Certainty, Error, Guard, Instant, Mode};
use parking_lot::Mutex;

use super::{Event, History, Op, Reply};
use crate::context::now;

/// Writes the operations on one name down as they happen.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    next: AtomicU64,
}

/// A guard, and which acquisition it is of.
#[derive(Debug)]
pub struct Held {
    /// The guard.
    pub guard: Guard,
    hold: u64,
    actor: usize,
}

impl Recorder {
    /// One with nothing written yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Takes a lock, and writes down how it went. `None` is a lock that is not free.
    ///
    /// # Errors
    /// As the acquisition.
    pub async fn acquire(
        &self,
        actor: usize,
        mode: Mode,
        taking: impl Future<Output = Result<Option<Guard>, Error>>,
    ) -> Result<Option<Held>, Error> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        self.acquire_as(hold, actor, mode, taking).await
    }

    /// An acquisition that is to be spoken of before it is granted.
    pub fn announce(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// [`acquire`](Self::acquire) as it was announced.
    ///
    /// # Errors
    /// As the acquisition.
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

    /// Writes down that an announced acquisition was seen to stand in line.
    pub fn arrived(&self, hold: u64, actor: usize) {
        let event = self.begin(actor, hold, Op::Arrive);
        self.end(event, Reply::Acked { token: None, until: None });
    }

    /// Goes from alone to shared.
    ///
    /// # Errors
    /// As [`Guard::downgrade`].
    pub async fn downgrade(&self, held: &mut Held) -> Result<(), Error> {
        let event = self.begin(held.actor, held.hold, Op::Downgrade);
        let result = held.guard.downgrade().await;
        self.end(event, reply(&result));
        result
    }

    /// Gives a lock up.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(&self, held: Held) -> Result<(), Error> {
        let event = self.begin(held.actor, held.hold, Op::Release);
        let result = held.guard.release().await.map(|_| ());
        self.end(event, reply(&result));
        result
    }

    /// What was written down.
    pub fn finish(&self) -> History {
        History { events: self.events.lock().clone(), ended: Some(now()) }
    }

    fn begin(&self, actor: usize, hold: u64, op: Op) -> usize {
        let mut events = self.events.lock();
        events.push(Event { actor, hold, op, invoked: now(), answer: None });
        events.len() - 1
    }

    fn end(&self, event: usize, reply: Reply) {
        // Before the lock on the list, which may take its time.
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
