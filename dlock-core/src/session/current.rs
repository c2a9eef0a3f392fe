//! The sessions of a store, one after the other.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch};

use super::{Life, SessionBase};
use crate::{Backoff, Error, SendFlag, StoreEventSender, StoreEvents, sync::time};

/// The number of events that are kept for a slow receiver. If it misses one, the next renewal finds
/// the loss.
const EVENTS: usize = 4096;

/// The shortest pause between two attempts to open the next session.
const SHORTEST: Duration = Duration::from_millis(20);

/// A session of one kind of store.
pub trait StoreSession:
    Deref<Target = SessionBase<Self::Claim>> + Sized + Send + Sync + 'static
{
    /// A claim of the session.
    type Claim: Deref<Target = Life> + Send + Sync + 'static;
    /// The configuration of the store.
    type Config: Clone + Send + Sync + 'static;
    /// The state that an ended session leaves to the next one.
    type Remainder: Send + Sync + 'static;

    /// Opens a session: the first one, or one that follows another one, which has left a remainder.
    /// The latter is repeated until it succeeds.
    fn open(
        config: &Self::Config,
        events: StoreEventSender,
        runtime: Handle,
        remainder: Option<&Self::Remainder>,
    ) -> impl Future<Output = Result<Arc<Self>, Error>> + Send;

    /// Serves the session until it has ended: sends its beats, and calls [`SessionBase::lapse`]. It
    /// must not keep the session alive, and returns if there is no other reference to it.
    fn serve(self: Arc<Self>) -> impl Future<Output = Self::Remainder> + Send;

    /// Ends the session if its last beat is too old.
    fn check_beat(&self) {}
}

/// The sessions of a store: the current one, and the task that replaces it when it has ended.
///
/// A caller keeps its session: its requests fail when that session ends, and its retry gets the next
/// one from [`living`](Self::living).
pub struct Sessions<S: StoreSession> {
    store: String,
    config: S::Config,
    events: StoreEventSender,
    runtime: Handle,
    current: watch::Sender<Arc<S>>,
}

impl<S: StoreSession> Sessions<S> {
    /// Opens the first session. `store` is the kind and the address of the store, without secrets.
    /// All requests run on the `runtime`.
    ///
    /// # Errors
    /// Those of [`StoreSession::open`].
    pub async fn open(store: String, config: S::Config, runtime: Handle) -> Result<Self, Error> {
        let events = StoreEventSender::new(EVENTS);
        let first = S::open(&config, events.clone(), runtime.clone(), None).await?;
        Ok(Self { store, config, events, runtime, current: watch::Sender::new(first) })
    }

    /// Starts the task that serves one session after the other, for as long as this exists.
    pub fn start(self: &Arc<Self>) {
        self.runtime.spawn(run(EndOnDrop(Arc::downgrade(self))));
    }

    /// Returns the kind and the address of the store.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Returns the events of all sessions from now on.
    pub fn events(&self) -> StoreEvents {
        self.events.subscribe()
    }

    /// Returns the current session, which may have ended.
    pub fn current(&self) -> Arc<S> {
        Arc::clone(&self.current.borrow())
    }

    /// Returns a session that has not ended, as far as is known. If necessary, it waits for the
    /// next one, for as long as a caller waits for an answer.
    ///
    /// # Errors
    /// The last error of [`SessionBase::set_error`] or of the attempts to open the next session, or
    /// the error for a missing answer.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn living(&self) -> Result<Arc<S>, Error> {
        self.living_or_next(None).await
    }

    /// As [`living`](Self::living), for an acquire that its caller may give up before it is sent. It
    /// can't be given up while it waits for the next session: the error then names the cause.
    ///
    /// # Errors
    /// As [`living`](Self::living).
    ///
    /// # Cancel safety
    /// The future can be dropped until the flag has begun.
    pub async fn living_for(&self, flag: &SendFlag) -> Result<Arc<S>, Error> {
        self.living_or_next(Some(flag)).await
    }

    async fn living_or_next(&self, flag: Option<&SendFlag>) -> Result<Arc<S>, Error> {
        let session = self.current();
        session.check_beat();
        if !session.is_over() {
            return Ok(session);
        }
        if let Some(flag) = flag {
            flag.begin();
        }
        let mut sessions = self.current.subscribe();
        let next = sessions.wait_for(|session| !session.is_over());
        match time::timeout(session.response_timeout(), next).await {
            Ok(Ok(next)) => Ok(Arc::clone(&next)),
            _ => Err(session.error()),
        }
    }
}

impl<S: StoreSession> fmt::Debug for Sessions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Serves one session after the other. The argument exists before the first poll, since the runtime
/// may drop the task before that.
async fn run<S: StoreSession>(end: EndOnDrop<S>) {
    let sessions = &end.0;
    loop {
        let Some(session) = sessions.upgrade().map(|sessions| sessions.current()) else { return };
        let weak = Arc::downgrade(&session);
        let remainder = session.serve().await;
        // Without a reference to the session, the store was dropped.
        let Some(ended) = weak.upgrade() else { return };
        ended.end();
        drop(ended);
        open_next(sessions, remainder).await;
    }
}

/// Opens the next session, however long it takes.
async fn open_next<S: StoreSession>(weak: &Weak<Sessions<S>>, remainder: S::Remainder) {
    let Some(sessions) = weak.upgrade() else { return };
    let (config, events) = (sessions.config.clone(), sessions.events.clone());
    let runtime = sessions.runtime.clone();
    let mut pause = Backoff::between(SHORTEST, sessions.current().response_timeout() / 4);
    drop(sessions);
    loop {
        let opening = S::open(&config, events.clone(), runtime.clone(), Some(&remainder));
        let opened = opening.await;
        let Some(sessions) = weak.upgrade() else { return };
        match opened {
            Ok(session) => {
                sessions.current.send_replace(session);
                return;
            }
            Err(error) => sessions.current().set_error(error),
        }
        drop(sessions);
        pause.wait().await;
        // The store was dropped meanwhile, and needs no session.
        if weak.strong_count() == 0 {
            return;
        }
    }
}

/// Ends the session if the runtime drops the task, since the session is not kept alive any more.
struct EndOnDrop<S: StoreSession>(Weak<Sessions<S>>);

impl<S: StoreSession> Drop for EndOnDrop<S> {
    fn drop(&mut self) {
        if let Some(sessions) = self.0.upgrade() {
            sessions.current().end();
        }
    }
}
