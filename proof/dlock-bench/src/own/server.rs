//! The baseline of the database servers.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{
    bare,
    baseline::sql as baseline,
    once::{self, Once},
    sql::Does,
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// The maximum number of connections. The driver does not pipeline, so many tasks need several
/// connections; more than this number only make the server slower.
const CONNECTIONS: usize = 32;

/// Connections that the locks share, each used by one lock at a time.
#[derive(Clone, Debug)]
pub(super) struct ServerBaseline {
    url: String,
    does: Does,
    connections: Arc<Mutex<Shared>>,
}

/// The connections, opened on demand.
#[derive(Debug, Default)]
struct Shared {
    all: Vec<Arc<Mutex<bare::BareConnection>>>,
    next: usize,
}

impl ServerBaseline {
    pub(super) async fn connect(url: &str, does: Does) -> Result<Self, Failure> {
        let bare = Self { url: url.to_owned(), does, connections: Arc::default() };
        baseline::make_table(&mut *bare.connection().await?.lock().await).await?;
        bare.connections.lock().await.next = 0;
        Ok(bare)
    }

    async fn connection(&self) -> Result<Arc<Mutex<bare::BareConnection>>, Failure> {
        let mut shared = self.connections.lock().await;
        let at = shared.next % CONNECTIONS;
        if at == shared.all.len() {
            let new = match self.url.starts_with("postgres") {
                true => bare::BareConnection::postgres(&self.url).await?,
                false => bare::BareConnection::mysql(&self.url).await?,
            };
            shared.all.push(Arc::new(Mutex::new(new)));
        }
        shared.next += 1;
        Ok(Arc::clone(&shared.all[at]))
    }
}

/// Names that use one connection together.
#[derive(Debug)]
pub(super) struct ServerBaselineLock {
    connection: Arc<Mutex<bare::BareConnection>>,
    does: Does,
    names: Vec<(String, String)>,
}

impl Subject for ServerBaseline {
    type Lock = ServerBaselineLock;

    async fn lock(&self, want: Want<'_>) -> Result<ServerBaselineLock, Failure> {
        let names = self.does.names(&want)?;
        Ok(ServerBaselineLock { connection: self.connection().await?, does: self.does, names })
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for ServerBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.lock(Want::One(name)).await?.cycle(&mut ()).await
    }
}

impl Lock for ServerBaselineLock {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        let mut connection = self.connection.lock().await;
        if self.does == Does::Row {
            for (name, owner) in &self.names {
                baseline::upsert(&mut connection, &[name, owner]).await?;
            }
            return Ok(());
        }
        for (name, owner) in &self.names {
            baseline::take(&mut connection, &[name, owner]).await?;
        }
        for (name, owner) in &self.names {
            baseline::release(&mut connection, &[name, owner]).await?;
        }
        Ok(())
    }
}
