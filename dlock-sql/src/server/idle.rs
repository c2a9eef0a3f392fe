//! The idle connections that the tasks of an engine share.
//!
//! Each task uses a connection for one statement at a time, and no other task has it then. So a
//! renewal never waits for another statement: if no connection is idle, it opens one. A client with
//! little to do has one connection, and one with much to do has one for each task.
//!
//! A task that can't open a connection may wait for the next one that becomes idle. It gets it before
//! other tasks: on a full server, a busy task would always take its only connection again.
//!
//! If a connection breaks, the idle ones are dropped too: they lead to the same server, and each
//! would cost a statement as much time as the first.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use crate::engine::Fault;

pub(crate) struct Idle<C>(Arc<Mutex<IdleState<C>>>);

struct IdleState<C> {
    idle: Vec<C>,
    /// The tasks that wait for one. Then none is idle.
    wanted: VecDeque<oneshot::Sender<C>>,
}

impl<C> Idle<C> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(IdleState { idle: Vec::new(), wanted: VecDeque::new() })))
    }

    /// Takes the connection that was used last, so that few are in use.
    pub(crate) fn take(&self) -> Option<C> {
        self.0.lock().idle.pop()
    }

    pub(crate) fn put(&self, mut conn: C) {
        let mut connections = self.0.lock();
        while let Some(wanted) = connections.wanted.pop_front() {
            match wanted.send(conn) {
                Ok(()) => return,
                // It has stopped waiting.
                Err(unsent) => conn = unsent,
            }
        }
        connections.idle.push(conn);
    }

    /// Waits until a connection is idle, and takes it.
    ///
    /// # Errors
    /// If none is idle within `limit`.
    pub(crate) async fn next(&self, limit: Duration) -> Result<C, Fault> {
        let mut coming = {
            let mut connections = self.0.lock();
            if let Some(conn) = connections.idle.pop() {
                return Ok(conn);
            }
            let (wanted, coming) = oneshot::channel();
            connections.wanted.retain(|wanted| !wanted.is_closed());
            connections.wanted.push_back(wanted);
            coming
        };
        if let Ok(Ok(conn)) = timeout(limit, &mut coming).await {
            return Ok(conn);
        }
        coming.close();
        // It may have come at the last moment.
        coming.try_recv().map_err(|_| {
            Fault::passing(
                "no other connection was idle in time: raise the server's limit of connections",
            )
        })
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().idle.is_empty()
    }

    /// Drops all connections without a message to the server.
    pub(crate) fn clear(&self) {
        let dropped = std::mem::take(&mut self.0.lock().idle);
        drop(dropped);
    }

    /// Returns the connections to close, if this was the last task.
    pub(crate) fn into_last(self) -> Vec<C> {
        let last = Arc::into_inner(self.0).map(Mutex::into_inner);
        last.map(|connections| connections.idle).unwrap_or_default()
    }
}

impl<C> Clone for Idle<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_connection_goes_first_to_the_task_that_waits_longest() {
        let idle = Idle::new();
        idle.put(1);
        assert_eq!(idle.next(LONG).await.unwrap(), 1);
        {
            let mut waits = std::pin::pin!(idle.next(LONG));
            assert!(timeout(Duration::from_secs(1), &mut waits).await.is_err());
            idle.put(2);
            assert_eq!(idle.take(), None);
            assert_eq!(waits.await.unwrap(), 2);
        }
        // The task of the second call has stopped waiting, so the connection is idle.
        assert!(idle.next(Duration::from_secs(1)).await.is_err());
        idle.put(3);
        assert_eq!(idle.take(), Some(3));
    }
}
