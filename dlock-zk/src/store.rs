//! The state that outlives a session. Only the session task replaces the session.

use std::sync::Arc;

use dlock_core::{
    Error, Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope,
    StoreEventSender, WakeUp, current_runtime, session::Sessions,
};
use tokio::runtime::Handle;

use crate::{config::ZkConfig, error::no_answer, preflight::preflight, session::Session};

/// The number of events that are kept for a slow receiver. If it misses one, the next renewal finds
/// the loss.
const EVENTS: usize = 4096;

/// A connected store.
pub(crate) struct Store {
    pub(crate) config: ZkConfig,
    /// The kind and the address of the store, without secrets.
    pub(crate) name: String,
    pub(crate) sessions: Sessions<Session>,
    pub(crate) events: StoreEventSender,
    pub(crate) guarantees: Guarantees,
    runtime: Handle,
}

impl Store {
    /// Opens the first session, and checks that the location in the URL can store locks.
    pub(crate) async fn open(config: ZkConfig) -> Result<Self, Error> {
        let events = StoreEventSender::new(EVENTS);
        let runtime = current_runtime()?;
        let session = Session::open(&config, events.clone(), runtime.clone()).await?;
        // A server that stops answering must not block the application.
        let tried = tokio::time::timeout(session.timeout, preflight(&session, &config));
        tried.await.unwrap_or_else(|_| Err(no_answer()))?;
        // With several servers, a majority keeps the data if one of them fails.
        let exclusion = match session.servers.voters {
            Some(2..) => Exclusion::Failover,
            _ => Exclusion::Restart,
        };
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

    /// Opens the next session.
    pub(crate) fn open_next(
        &self,
    ) -> impl Future<Output = Result<Arc<Session>, Error>> + Send + use<> {
        let (config, events) = (self.config.clone(), self.events.clone());
        let runtime = self.runtime.clone();
        async move {
            let session = Session::open(&config, events, runtime).await?;
            // Started now, so that the first acquire does not wait for it.
            let beginning = Arc::clone(&session);
            session.background(async move { drop(beginning.epoch().await) });
            Ok(session)
        }
    }
}
