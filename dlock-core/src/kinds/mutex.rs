//! The plain mutex.

use std::sync::Arc;

use super::{Base, Takes};
use crate::{
    Error, Guard, LockName, Mode,
    acquire::handoff,
    engine::hold_ref::HoldRef,
    hold::{Hold, local_queue::LocalQueue},
    support::{labels::Kind, retry::Wait},
};

/// A lock for one holder at a time. Created by [`Locks::mutex`](crate::Locks::mutex).
///
/// Tasks of one process that share a [`Locks`](crate::Locks) hand it off to each other without a
/// request to the store, at most 32,768 times or for 10 ms, each with a new token. Then the
/// processes that wait in the store's queue have their turn. Use [`FairMutex`](super::FairMutex) if
/// the order of arrival must hold across all tasks.
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) base: Base,
    /// The local queue of this process, if local hand-off is on.
    queue: Option<Arc<LocalQueue<Hold>>>,
}

impl Mutex {
    pub(crate) fn new(base: Base, hand_off: bool) -> Self {
        let queue = hand_off.then(|| {
            let make = || LocalQueue::new(&base.name, &base.options);
            base.client.queues.get((&base.name, Some(&*base.options)), make)
        });
        Self { base, queue }
    }

    /// Returns the error for a wait for a task of this process that has ended.
    pub(super) fn timed_out(&self) -> Error {
        match &self.queue {
            Some(queue) => handoff::timed_out(self.base.engine(), queue),
            None => self.base.engine().timed_out(&self.base.name),
        }
    }

    /// Acquires the hold as `acquire` does, for a reentrant lock.
    pub(super) async fn acquire_held(&self, wait: Wait) -> Result<Option<HoldRef>, Error> {
        self.base.engine().meter.acquiring(Kind::Mutex, self.hold(wait)).await
    }

    async fn hold(&self, wait: Wait) -> Result<Option<HoldRef>, Error> {
        match &self.queue {
            Some(queue) => handoff::lock(self.base.engine(), queue, wait).await,
            None => self.base.take(Mode::Exclusive, wait).await,
        }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    acquiring_methods!();
}

impl Takes for Mutex {
    fn base(&self) -> &Base {
        &self.base
    }

    fn kind(&self) -> Kind {
        Kind::Mutex
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        Ok(self.hold(wait).await?.map(Guard::one))
    }
}
