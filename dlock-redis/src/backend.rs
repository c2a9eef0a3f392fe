//! The backend of one server, Sentinel and Cluster.
//!
//! It maps the verbs of the contract to the store. `acquire` and `release` return an `Answer` that owns
//! all it needs, so they continue if the caller drops them. An acquire that waits for its window is
//! dropped with its caller.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, BackendUrl, Claim, Connecting, DynBackend,
    Error, Factory, FencingToken, Finding, Grant, Guarantees, LockName, LockState, Released,
    Renewal, Renewed, StoreEvents, current_io_runtime,
};

use crate::{
    config::{RedisConfig, Topology},
    list::list,
    plain::Plain,
    quorum::Quorum,
    store::Store,
    wait::poll_waiters,
};

/// A store of locks on Redis or Valkey. See the crate's documentation.
pub struct Redis {
    store: Arc<Store>,
    guarantees: Guarantees,
}

impl Redis {
    /// Connects, and checks whether the server meets the requirements.
    ///
    /// # Errors
    /// `Unavailable` if the server can't be reached, is loading, is a read-only replica or accepts
    /// no more clients; `Config(Access)` for a wrong password, missing rights, or wrong TLS
    /// settings; `Config(Url)` if the server is a node of a cluster and the URL names none, or the
    /// reverse; `Unsupported` for a server before 7.0; `Config(Runtime)` outside a tokio runtime,
    /// and on a runtime without timers or I/O.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it has opened.
    pub async fn connect(config: RedisConfig) -> Result<DynBackend, Error> {
        let runtime = current_io_runtime(needs_io)?;
        let config = config.checked()?;
        if config.topology == Topology::Quorum {
            return Ok(Quorum::connect(config).await?);
        }
        if config.plain {
            return Ok(Plain::connect(config).await?);
        }
        let store = Arc::new(Store::open(config).await?);
        let waiters = Arc::clone(&store.waiters);
        // A weak reference: the task must not keep the store alive. Dropping the store closes the
        // waiters, which ends the task.
        runtime.spawn(poll_waiters(Arc::downgrade(&store), waiters));
        let guarantees = store.guarantees();
        Ok(Arc::new(Self { store, guarantees }))
    }
}

#[async_trait]
impl Backend for Redis {
    fn store(&self) -> &str {
        &self.store.session.store
    }

    fn guarantees(&self) -> Guarantees {
        // The server's settings may have changed since the connect. The link reads them regularly.
        self.guarantees.with_exclusion(self.store.session.exclusion())
    }

    fn shard(&self, name: &LockName) -> u32 {
        self.store.shard(name)
    }

    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.store.session.check_lease(lease)
    }

    fn response_timeout(&self) -> Duration {
        self.store.session.response_timeout
    }

    fn events(&self) -> Option<StoreEvents> {
        Some(self.store.clocks.events())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (store, request) = (Arc::clone(&self.store), request.clone());
        Answer::unsent(|flag| async move { store.acquire(&request, &flag).await })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.store.granted(request).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.store.renew_all(renewals).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (store, claim) = (Arc::clone(&self.store), claim.clone());
        Answer::later(async move { store.release(&claim).await })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.store.session.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        if !self.store.can_take_together(requests) {
            return None;
        }
        let (store, requests) = (Arc::clone(&self.store), requests.to_vec());
        Some(Answer::unsent(|flag| async move { store.acquire_all(&requests, &flag).await }))
    }
}

#[async_trait]
impl Admin for Redis {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        list(&self.store.session, prefix, limit).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.store.examine().await
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.store.raise_tokens(name, above).await
    }
}

/// The factory of Redis and Valkey with all schemes and options, for a
/// [`Registry`](dlock_core::Registry).
pub const REDIS: Factory =
    Factory::new("redis", RedisConfig::SCHEMES, RedisConfig::OPTIONS, connect);

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("store", &self.store()).finish_non_exhaustive()
    }
}

/// Creates something that needs the I/O of tokio's runtime.
fn needs_io() -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket).map(drop)
}

fn connect(mut url: BackendUrl) -> Connecting {
    let config = RedisConfig::take(&mut url);
    Box::pin(async move { Redis::connect(config?).await })
}
