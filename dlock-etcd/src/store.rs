//! The state that outlives a session. Only the session task replaces the session.

use std::sync::Arc;

use dlock_core::{
    Error, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, StoreEventSender,
    WakeUp, current_runtime, session::Sessions,
};
use tokio::runtime::Handle;

use crate::{config::EtcdConfig, members::Members, session::Session};

/// The number of events that are kept for a slow receiver. If it misses one, the next renewal finds
/// the loss.
const EVENTS: usize = 4096;

/// A connected store.
pub(crate) struct Store {
    pub(crate) config: EtcdConfig,
    /// The kind and the address of the store, without secrets.
    pub(crate) name: String,
    pub(crate) sessions: Sessions<Session>,
    pub(crate) events: StoreEventSender,
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
        Ok(Self {
            name: config.store(),
            config,
            runtime,
            sessions: Sessions::new(session),
            events,
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

    /// Returns a session that is alive, as far as is known. Waits briefly for the next one if
    /// necessary.
    pub(crate) async fn living(&self) -> Result<Arc<Session>, Error> {
        // A session without a beat in time ends here.
        self.sessions.current().is_alive();
        self.sessions.living().await
    }

    /// Opens the next session.
    pub(crate) fn open_next(
        &self,
    ) -> impl Future<Output = Result<Arc<Session>, Error>> + Send + use<> {
        let (config, events) = (self.config.clone(), self.events.clone());
        let runtime = self.runtime.clone();
        async move { Session::open(&config, events, runtime).await }
    }
}
