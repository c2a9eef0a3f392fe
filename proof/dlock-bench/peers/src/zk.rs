//! zookeeper-client's own lock, with Curator's nodes. It is released in the background.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// The session timeout is long, so that no session ends on a busy machine.
const SESSION: Duration = Duration::from_secs(30);

/// A session.
#[derive(Clone)]
pub(crate) struct Recipe(Client);

impl Recipe {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let address = url.strip_prefix("zk://").ok_or("not the address of a ZooKeeper")?;
        Ok(Self(
            Client::connector()
                .with_session_timeout(SESSION)
                .with_fail_eagerly()
                .connect(address)
                .await?,
        ))
    }
}

/// A name.
pub(crate) struct Named {
    client: Client,
    directory: String,
}

impl Subject for Recipe {
    type Lock = Named;

    async fn lock(&self, want: Want<'_>) -> Result<Named, Failure> {
        match want {
            Want::One(name) | Want::Fair(name) => {
                Ok(Named { client: self.0.clone(), directory: format!("/recipe/{name}") })
            }
            Want::Read(_) | Want::Write(_) => Err("it has no read-write lock".into()),
            Want::All(_) => Err("it takes one name at a time".into()),
        }
    }
}

impl Lock for Named {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let prefix = LockPrefix::new_curator(&self.directory, "lock-")?;
        let above = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(above)?;
        let guard = self.client.lock(prefix, b"", options).await?;
        witness.held(None).await;
        drop(guard);
        Ok(())
    }
}
