//! The baseline of etcd, and the server's own Lock service, which runs Go's mutex in the server.

use futures_util::future::try_join_all;

use super::{
    baseline::etcd::{self as baseline, EtcdClient},
    once::{self, Once},
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// A connection with a session.
#[derive(Clone)]
pub(super) struct EtcdBaseline {
    client: EtcdClient,
    session: i64,
}

impl EtcdBaseline {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = baseline::connect(super::address(url)).await?;
        let session = client.grant().await?;
        Ok(Self { client, session })
    }
}

/// Locks that are acquired together.
pub(super) struct EtcdBaselineLocks {
    of: EtcdBaseline,
    names: Vec<String>,
}

impl Subject for EtcdBaseline {
    type Lock = EtcdBaselineLocks;

    async fn lock(&self, want: Want<'_>) -> Result<EtcdBaselineLocks, Failure> {
        let names = match want {
            Want::One(name) => vec![name.to_owned()],
            Want::All(names) => names.to_vec(),
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(super::NO_WAIT.into()),
        };
        Ok(EtcdBaselineLocks { of: self.clone(), names })
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for EtcdBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.client.cycle(name, self.session).await
    }
}

impl Lock for EtcdBaselineLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        let Self { of, names } = self;
        match &names[..] {
            [one] => of.once(one).await,
            all => try_join_all(all.iter().map(|name| of.once(name))).await.map(|_| ()),
        }
    }
}

/// The server's own Lock service.
#[derive(Clone)]
pub(super) struct LockService(EtcdClient);

impl LockService {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(baseline::connect(super::address(url)).await?))
    }
}

/// A lock of the service. It has a session of its own, because the service lets a session in twice.
pub(super) struct ServiceLock {
    client: EtcdClient,
    session: i64,
    name: String,
}

impl Subject for LockService {
    type Lock = ServiceLock;

    async fn lock(&self, want: Want<'_>) -> Result<ServiceLock, Failure> {
        match want {
            Want::One(name) | Want::Fair(name) => {
                let (client, session) = (self.0.clone(), self.0.grant().await?);
                Ok(ServiceLock { client, session, name: format!("/service/{name}") })
            }
            Want::Read(_) | Want::Write(_) => Err("it has no read-write lock".into()),
            Want::All(_) => Err("it takes one name at a time".into()),
        }
    }
}

impl Lock for ServiceLock {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let key = self.client.lock(&self.name, self.session).await?;
        witness.held(None).await;
        self.client.unlock(key).await
    }
}
