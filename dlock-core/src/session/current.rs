//! The current session of a store.

use std::{ops::Deref, sync::Arc};

use tokio::sync::watch;

use super::{Life, SessionBase};
use crate::{
    Error,
    sync::{Mutex, time},
};

/// The current session of a store, and the change to the next one.
///
/// One task replaces the session, after the old one has ended. A caller keeps its session: its
/// requests fail when that session ends, and its retry gets the next one from
/// [`living`](Self::living).
#[derive(Debug)]
pub struct Sessions<S> {
    current: watch::Sender<Arc<S>>,
    /// The reason why there is no next session yet.
    last_error: Mutex<Option<Error>>,
}

impl<S, C> Sessions<S>
where
    S: Deref<Target = SessionBase<C>> + Send + Sync,
    C: Deref<Target = Life> + Send + Sync,
{
    /// Begins with this session.
    pub fn new(first: Arc<S>) -> Self {
        Self { current: watch::Sender::new(first), last_error: Mutex::new(None) }
    }

    /// Returns the current session, which may have ended.
    pub fn current(&self) -> Arc<S> {
        Arc::clone(&self.current.borrow())
    }

    /// Returns a session that has not ended, as far as is known. If necessary, it waits for the
    /// next one, for as long as a caller waits for an answer.
    ///
    /// # Errors
    /// The last error of [`note`](Self::note), or the error for a missing answer.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn living(&self) -> Result<Arc<S>, Error> {
        let session = self.current();
        if !session.is_over() {
            return Ok(session);
        }
        let mut sessions = self.current.subscribe();
        let next = sessions.wait_for(|session| !session.is_over());
        match time::timeout(session.patience(), next).await {
            Ok(Ok(next)) => Ok(Arc::clone(&next)),
            _ => Err(self.last_error.lock().clone().unwrap_or_else(|| session.no_answer())),
        }
    }

    /// Replaces the session, which has ended.
    pub fn replace(&self, session: Arc<S>) {
        *self.last_error.lock() = None;
        self.current.send_replace(session);
    }

    /// Records the reason why there is no session.
    pub fn note(&self, error: Error) {
        *self.last_error.lock() = Some(error);
    }
}
