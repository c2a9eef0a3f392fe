//! The backend.
//!
//! It maps the verbs of the contract to the current session, and adds the context to errors.
//! `granted` and `renew` use a session that may have ended: a claim belongs to its session, so the
//! answer is then a loss. The other verbs wait for a session that is alive. `acquire` and `release`
//! return an `Answer` that owns all it needs, and run to their end if the caller drops them.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, BackendUrl, Claim, Connecting, DynBackend,
    Error, Factory, FencingToken, Finding, Grant, Guarantees, LockName, LockState, Released,
    Renewal, Renewed, StoreEvents, current_io_runtime,
};

use crate::{
    config::EtcdConfig,
    error::{gone, no_raise_tokens, too_many},
    examine::examine,
    key::MOST_NAMES,
    session_task,
    store::Store,
};

/// The factory of etcd with all schemes and options, for a [`Registry`](dlock_core::Registry).
pub const FACTORY: Factory =
    Factory::new("etcd", EtcdConfig::SCHEMES, EtcdConfig::OPTIONS, connect);

/// A store of locks on etcd. See the crate's documentation.
pub struct Etcd {
    store: Arc<Store>,
}

impl Etcd {
    /// Opens a session, and checks that the members and the root can store locks.
    ///
    /// # Errors
    /// `Unavailable` if no member can be reached (for example because it needs TLS) or accepts
    /// writes; `Config(Access)` for a wrong password, missing rights, or invalid TLS files;
    /// `Unsupported` for etcd before 3.4 and for a gRPC proxy; `Protocol` for a server that is not
    /// etcd; `Config(Runtime)` outside a tokio runtime, and on a runtime without timers or I/O; and
    /// the errors of an invalid [`EtcdConfig`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened. A lease that it has requested
    /// ends after the session timeout.
    pub async fn connect(config: EtcdConfig) -> Result<DynBackend, Error> {
        let runtime = current_io_runtime(needs_io)?;
        let config = config.checked()?;
        let name = config.store();
        let opened = Store::open(config).await;
        let store = opened.map_err(|error| error.during("connect").with_store(&name))?;
        let store = Arc::new(store);
        runtime.spawn(session_task::run(Arc::downgrade(&store)));
        Ok(Arc::new(Self { store }))
    }
}

#[async_trait]
impl Backend for Etcd {
    fn store(&self) -> &str {
        &self.store.name
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees
    }

    fn longest_lease(&self) -> Duration {
        self.store.sessions.current().longest_lease()
    }

    fn response_timeout(&self) -> Duration {
        self.store.sessions.current().patience()
    }

    fn events(&self) -> Option<StoreEvents> {
        Some(self.store.events.subscribe())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (store, request) = (Arc::clone(&self.store), request.clone());
        Answer::later(async move {
            let name = request.name.clone();
            let answer = async {
                let session = store.living().await?;
                let acquiring = Arc::clone(&session).acquire(vec![request]);
                let answers = session.see_through_in(&session.acquires, acquiring).await?;
                answers.into_iter().next().ok_or_else(gone)
            };
            answer.await.map_err(|error| error.at("acquire", &name, &store.name))
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        // Not `living`: the claim is a key of the session in which it was sent. In a later one it
        // does not exist, and the core has to send it again.
        let grant = self.store.sessions.current().wait(request).await;
        grant.map_err(|error| error.at("acquire", &request.name, self.store()))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let renewed = self.store.sessions.current().renew(renewals).await;
        renewed.map_err(|error| error.during("renew").with_store(self.store()))
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (store, claim) = (Arc::clone(&self.store), claim.clone());
        Answer::later(async move {
            let name = claim.name.clone();
            let answer = async {
                let session = store.living().await?;
                let releasing = Arc::clone(&session).release(claim);
                session.see_through_in(&session.releases, releasing).await
            };
            answer.await.map_err(|error| error.at("release", &name, &store.name))
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let state = async { self.store.living().await?.inspect(name).await };
        state.await.map_err(|error| error.at("inspect", name, self.store()))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let (store, requests) = (Arc::clone(&self.store), requests.to_vec());
        Some(Answer::later(async move {
            let answer = async {
                if requests.len() > MOST_NAMES {
                    return Err(too_many(requests.len()));
                }
                let session = store.living().await?;
                let acquiring = Arc::clone(&session).acquire(requests);
                session.see_through_in(&session.acquires, acquiring).await
            };
            answer.await.map_err(|error| error.during("acquire").with_store(&store.name))
        }))
    }
}

#[async_trait]
impl Admin for Etcd {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let names = async { self.store.living().await?.list(prefix, limit).await };
        names.await.map_err(|error| error.during("list").with_store(self.store()))
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let findings = async { examine(&*self.store.living().await?, &self.store.config).await };
        findings.await.map_err(|error| error.during("examine").with_store(self.store()))
    }

    async fn raise_tokens(&self, name: &LockName, _: FencingToken) -> Result<(), Error> {
        Err(no_raise_tokens().at("raise_tokens", name, self.store()))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("store", &self.store.name).finish_non_exhaustive()
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
