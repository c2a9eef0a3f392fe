//! The backend.
//!
//! It maps the verbs of the contract to the current session. `granted` and `renew` use a session that
//! may have ended: a claim belongs to its session, so the answer is then a loss. The other verbs wait
//! for a session that is alive. `acquire` and `release` return an `Answer` that owns all it needs, and
//! run to their end if the caller drops them. An acquire that waits for its window is dropped.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, BackendUrl, Claim, Connecting, DynBackend,
    Error, Factory, FencingToken, Finding, Grant, Guarantees, LockName, LockState, Released,
    Renewal, Renewed, StoreEvents, current_io_runtime,
    session::{Sessions, for_now},
};

use crate::{
    config::EtcdConfig,
    error::{gone, no_raise_tokens, too_many},
    examine::examine,
    key::MOST_NAMES,
    preflight::preflight,
    session::Session,
};

/// The factory of etcd with all schemes and options, for a [`Registry`](dlock_core::Registry).
pub const FACTORY: Factory =
    Factory::new("etcd", EtcdConfig::SCHEMES, EtcdConfig::OPTIONS, connect);

/// A store of locks on etcd. See the crate's documentation.
#[derive(Debug)]
pub struct Etcd {
    sessions: Arc<Sessions<Session>>,
    guarantees: Guarantees,
}

impl Etcd {
    /// Opens a session, and checks that the members and the root can store locks.
    ///
    /// # Errors
    /// `Unavailable` if no member can be reached (for example because it needs TLS) or accepts
    /// writes; `Config(Access)` for a wrong password, missing rights, or invalid TLS files;
    /// `Unsupported` for etcd before 3.4, for a gRPC proxy, and for a server that allows fewer than
    /// four requests at a time on a connection; `Protocol` for a server that is not etcd; `Config(Runtime)` outside a tokio runtime, and on a runtime without timers or I/O; and
    /// the errors of an invalid [`EtcdConfig`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened. A lease that it has requested
    /// ends after the session timeout.
    pub async fn connect(config: EtcdConfig) -> Result<DynBackend, Error> {
        let runtime = current_io_runtime(needs_io)?;
        let config = config.checked()?;
        let store = config.store();
        let opened = async {
            let sessions = Sessions::open(store.clone(), config, runtime).await?;
            let guarantees = preflight(&sessions.current()).await?;
            Ok(Self { sessions: Arc::new(sessions), guarantees })
        };
        let opened =
            opened.await.map_err(|error: Error| error.during("connect").with_store(&store))?;
        opened.sessions.start();
        Ok(Arc::new(opened))
    }
}

#[async_trait]
impl Backend for Etcd {
    fn store(&self) -> &str {
        self.sessions.store()
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn longest_lease(&self) -> Duration {
        self.sessions.current().longest_lease()
    }

    fn response_timeout(&self) -> Duration {
        self.sessions.current().response_timeout()
    }

    fn events(&self) -> Option<StoreEvents> {
        Some(self.sessions.events())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (sessions, request) = (Arc::clone(&self.sessions), request.clone());
        Answer::unsent(|flag| async move {
            let session = sessions.living_for(&flag).await?;
            let acquiring = Arc::clone(&session).acquire(vec![request]);
            let answers = session.see_through_in(&session.acquires, Some(&flag), acquiring).await?;
            answers.into_iter().next().ok_or_else(gone)
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        // Not `living`: the claim is a key of the session in which it was sent. In a later one it
        // does not exist, and the core has to send it again.
        // A waiter had the right to create its key, so one that is missing now may come back.
        self.sessions.current().wait(request).await.map_err(for_now)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.sessions.current().renew(renewals).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (sessions, claim) = (Arc::clone(&self.sessions), claim.clone());
        Answer::later(async move {
            let session = sessions.living().await?;
            let releasing = Arc::clone(&session).release(claim);
            session.see_through_in(&session.releases, None, releasing).await
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.sessions.living().await?.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let (sessions, requests) = (Arc::clone(&self.sessions), requests.to_vec());
        Some(Answer::unsent(|flag| async move {
            if requests.len() > MOST_NAMES {
                return Err(too_many(requests.len()));
            }
            let session = sessions.living_for(&flag).await?;
            let acquiring = Arc::clone(&session).acquire(requests);
            session.see_through_in(&session.acquires, Some(&flag), acquiring).await
        }))
    }
}

#[async_trait]
impl Admin for Etcd {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        self.sessions.living().await?.list(prefix, limit).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        examine(&*self.sessions.living().await?).await
    }

    async fn raise_tokens(&self, _: &LockName, _: FencingToken) -> Result<(), Error> {
        Err(no_raise_tokens())
    }
}

fn connect(mut url: BackendUrl) -> Connecting {
    let config = EtcdConfig::take(&mut url);
    Box::pin(async move { Etcd::connect(config?).await })
}

/// Creates something that needs the I/O of tokio's runtime.
fn needs_io() -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket).map(drop)
}
