//! The current session, and the state that outlives a session.
//!
//! Only the minder replaces the session, after the old one has ended. A caller keeps its session:
//! its requests fail when that session ends, and its retry gets the next one from
//! [`Store::living`].

use std::sync::Arc;

use dlock_core::{
    Error, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, StoreEventSender,
    WakeUp, current_runtime,
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::watch};

use crate::{config::EtcdConfig, error::no_answer, members::Members, session::Session};

/// The number of events that are kept for a slow receiver. If it misses one, the next renewal finds
/// the loss.
const EVENTS: usize = 4096;

/// A connected store.
pub(crate) struct Store {
    pub(crate) config: EtcdConfig,
    /// The kind and the address of the store, without secrets.
    pub(crate) name: String,
    sessions: watch::Sender<Arc<Session>>,
    pub(crate) events: StoreEventSender,
    /// The reason why there is no next session yet.
    trouble: Mutex<Option<Error>>,
    pub(crate) guarantees: Guarantees,
    runtime: Handle,
}

impl Store {
    /// Opens the first session, and checks that the members and the root can store locks.
    pub(crate) async fn open(config: EtcdConfig) -> Result<Self, Error> {
        let events = StoreEventSender::new(EVENTS);
        let runtime = current_runtime()?;
        let session = Session::open(&config, events.clone(), runtime.clone()).await?;
        let members = Members::ask(&session, &config).await?;
        let exclusion = members.exclusion();
        if let Some(why) = members.weakness() {
            tracing::warn!(target: "dlock", store = config.store(), why, "weaker guarantees");
        }
        Ok(Self {
            name: config.store(),
            config,
            runtime,
            sessions: watch::Sender::new(session),
            events,
            trouble: Mutex::default(),
            guarantees: Guarantees::WEAKEST
                .with_exclusion(exclusion)
                .with_fencing(Fencing::Durable)
                .with_orphan_release(OrphanRelease::SessionEnd)
                .with_fairness(Fairness::Fifo)
                .with_wake_up(WakeUp::Push)
                .with_scope(Scope::Network)
                .with_permits(Permits::Counted)
                .with_notes(Notes::Kept),
        })
    }

    /// Returns the current session, which may have ended.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.sessions.borrow())
    }

    /// Returns a session that is alive, as far as is known. Waits briefly for the next one if
    /// necessary.
    pub(crate) async fn living(&self) -> Result<Arc<Session>, Error> {
        let session = self.session();
        if session.is_alive() {
            return Ok(session);
        }
        let mut sessions = self.sessions.subscribe();
        let next = sessions.wait_for(|session| !session.is_over());
        match tokio::time::timeout(session.patience(), next).await {
            Ok(Ok(next)) => Ok(Arc::clone(&next)),
            _ => Err(self.trouble.lock().clone().unwrap_or_else(no_answer)),
        }
    }

    /// Opens the next session.
    pub(crate) fn open_next(
        &self,
    ) -> impl Future<Output = Result<Arc<Session>, Error>> + Send + use<> {
        let (config, events) = (self.config.clone(), self.events.clone());
        let runtime = self.runtime.clone();
        async move { Session::open(&config, events, runtime).await }
    }

    pub(crate) fn replace(&self, session: Arc<Session>) {
        *self.trouble.lock() = None;
        self.sessions.send_replace(session);
    }

    /// Records the reason why there is no session.
    pub(crate) fn note(&self, error: Error) {
        *self.trouble.lock() = Some(error);
    }
}
