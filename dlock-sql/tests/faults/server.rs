//! The server, and faults of it.

use std::time::Duration;

use dlock_soak::{Load, Storm};
use dlock_testlab::{
    Proxy, Stop, Verdict,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
};
use tokio::time::sleep;

use crate::cleanup;

/// Which server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

/// A private server.
pub(crate) enum Server {
    Postgres(PostgresServer),
    Mysql(MariadbServer),
}

impl Server {
    pub(crate) async fn start(kind: Kind) -> Result<Self, Stop> {
        Ok(match kind {
            Kind::Postgres => {
                Self::Postgres(PostgresServer::start(&postgres::Options::new()).await?)
            }
            Kind::Mysql => Self::Mysql(MariadbServer::start(&mariadb::Options::new()).await?),
        })
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Postgres(server) => server.address(),
            Self::Mysql(server) => server.address(),
        }
    }

    /// With options that fit short leases and a look at what is left.
    pub(crate) fn url(&self) -> String {
        self.patient_url() + "&dlock.response_timeout=500ms"
    }

    /// The address for clients without faults, which wait as long for answers as any client.
    pub(crate) fn patient_url(&self) -> String {
        let url = match self {
            Self::Postgres(server) => server.url(),
            Self::Mysql(server) => server.url(),
        };
        let and = if url.contains('?') { '&' } else { '?' };
        format!("{url}{and}dlock.create_schema=true&dlock.retention=1s")
    }

    pub(crate) fn url_through(&self, proxy: &Proxy) -> String {
        self.url().replace(&self.address(), &proxy.address())
    }

    pub(crate) async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        match self {
            Self::Postgres(server) => server.query(sql).await,
            Self::Mysql(server) => server.query(sql).await,
        }
    }

    pub(crate) async fn end_sessions(&self) -> Verdict {
        match self {
            Self::Postgres(server) => server.terminate_backends().await?,
            Self::Mysql(server) => server.terminate_backends().await?,
        };
        Ok(())
    }

    /// The transactions that somebody began and did not end.
    pub(crate) async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        match self {
            Self::Postgres(server) => server.open_transactions().await,
            Self::Mysql(server) => server.open_transactions().await,
        }
    }

    /// Kills it and starts it again.
    pub(crate) async fn restart(&self) -> Verdict {
        match self {
            Self::Postgres(server) => server.restart().await,
            Self::Mysql(server) => server.restart().await,
        }
    }

    async fn pause(&self, time: Duration) -> Verdict {
        match self {
            Self::Postgres(server) => server.pause()?,
            Self::Mysql(server) => server.pause()?,
        }
        sleep(time).await;
        match self {
            Self::Postgres(server) => server.resume(),
            Self::Mysql(server) => server.resume(),
        }
    }
}

/// It comes back with everything that it has acknowledged.
pub(crate) async fn is_killed(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let load = Load::new("crash").start(&server.url()).await?;
    let mut storm = Storm::begin("crash");
    while storm.next(&load, 900).await {
        server.restart().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

pub(crate) async fn is_paused(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let load = Load::new("paused").start(&server.url()).await?;
    let mut storm = Storm::begin("paused");
    while storm.next(&load, 600).await {
        server.pause(Duration::from_millis(rand::random_range(50..1000))).await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

/// An administrator who terminates backends.
pub(crate) async fn ends_its_sessions(kind: Kind) -> Verdict {
    let server = Server::start(kind).await?;
    let load = Load::new("sessions").start(&server.url()).await?;
    let mut storm = Storm::begin("sessions");
    while storm.next(&load, 400).await {
        server.end_sessions().await?;
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}
