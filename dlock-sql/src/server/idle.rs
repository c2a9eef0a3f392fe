//! The idle connections that the tasks of an engine share.
//!
//! Each task uses a connection for one statement at a time, and no other task has it then. So a
//! renewal never waits for another statement: if no connection is idle, it opens one. A client with
//! little to do has one connection, and one with much to do has one for each task.
//!
//! If a connection breaks, the idle ones are dropped too: they lead to the same server, and each
//! would cost a statement as much time as the first.

use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) struct Idle<C>(Arc<Mutex<Vec<C>>>);

impl<C> Idle<C> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    /// Takes the connection that was used last, so that few are in use.
    pub(crate) fn take(&self) -> Option<C> {
        self.0.lock().pop()
    }

    pub(crate) fn put(&self, conn: C) {
        self.0.lock().push(conn);
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Drops all connections without a message to the server.
    pub(crate) fn clear(&self) {
        let dropped = std::mem::take(&mut *self.0.lock());
        drop(dropped);
    }

    /// Returns the connections to close, if this was the last task.
    pub(crate) fn into_last(self) -> Vec<C> {
        Arc::into_inner(self.0).map(Mutex::into_inner).unwrap_or_default()
    }
}

impl<C> Clone for Idle<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
