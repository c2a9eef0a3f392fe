//! Private servers of PostgreSQL and MariaDB.

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName, Registry, machine::text};
use dlock_sql::{MYSQL, Mysql, MysqlConfig, POSTGRES};
use dlock_testkit::{Opened, Store};
use dlock_testlab::{
    Stop,
    mariadb::{self, MariadbServer},
    postgres::{self, PgBouncer, PostgresServer},
};

/// One way to run a server.
#[derive(Clone, Copy)]
enum Setting {
    Postgres,
    /// Behind PgBouncer, which gives each transaction another connection.
    Pooler,
    Mariadb,
    /// Without `RETURNING`.
    Mysql,
}

/// All of them.
pub(crate) fn all() -> Vec<Box<dyn Store>> {
    [Setting::Postgres, Setting::Pooler, Setting::Mariadb, Setting::Mysql]
        .map(|setting| Box::new(setting) as Box<dyn Store>)
        .into()
}

/// The end of an address that means: without `RETURNING`. It is not an option of a URL.
const AS_MYSQL: &str = "#as-mysql";

/// A server, which ends when this value is dropped.
enum Server {
    Postgres(PostgresServer),
    Pooler(PostgresServer, Box<PgBouncer>),
    Mysql(MariadbServer, &'static str),
}

#[async_trait]
impl Store for Setting {
    fn name(&self) -> &str {
        match self {
            Self::Postgres | Self::Pooler => "postgres",
            Self::Mariadb | Self::Mysql => "mysql",
        }
    }

    fn setting(&self) -> &str {
        match self {
            Self::Postgres => "postgres",
            Self::Pooler => "pooler",
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
        }
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        let postgres = async || PostgresServer::start(&postgres::Options::new()).await;
        let mariadb = async || MariadbServer::start(&mariadb::Options::new()).await;
        Ok(Box::new(match self {
            Self::Postgres => Server::Postgres(postgres().await?),
            Self::Pooler => {
                let server = postgres().await?;
                let pooler = PgBouncer::start(&server, &["default_pool_size = 3"]).await?;
                Server::Pooler(server, Box::new(pooler))
            }
            Self::Mariadb => Server::Mysql(mariadb().await?, ""),
            Self::Mysql => Server::Mysql(mariadb().await?, AS_MYSQL),
        }))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        connect(address).await
    }
}

#[async_trait]
impl Opened for Server {
    async fn connect(&self) -> Result<DynBackend, Error> {
        connect(&self.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let name = self.is(name);
        let rows = match self {
            Self::Postgres(server) | Self::Pooler(server, _) => {
                let select = "SELECT (extract(epoch FROM now()) * 1000000)::bigint, snap, log";
                server.query(&format!("{select} FROM dlock_lock WHERE {name}")).await?
            }
            Self::Mysql(server, _) => {
                let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
                let select = format!("SELECT {now}, snap, log FROM dlock_lock");
                server.query(&format!("{select} WHERE {name}")).await?
            }
        };
        let mut left = Vec::new();
        for row in rows {
            let [now, snap, log] = row.as_slice() else {
                return Err(Stop::failed(format!("an odd row: {row:?}")));
            };
            // The row of a lock that is free may stay for a day.
            let state = text::replay(snap, log)?.machine.inspect(now.parse()?);
            let claims = state.holders.iter().chain(&state.waiters);
            left.extend(claims.map(|claim| format!("{claim:?}")));
        }
        Ok(left)
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        let delete = format!("DELETE FROM dlock_lock WHERE {}", self.is(name));
        match self {
            Self::Postgres(server) | Self::Pooler(server, _) => server.run_sql(&delete).await?,
            Self::Mysql(server, _) => server.run_sql(&delete).await?,
        }
        Ok(true)
    }
}

impl Server {
    /// The condition for the row of this name, whose characters may be special in SQL.
    fn is(&self, name: &LockName) -> String {
        let hex: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Postgres(_) | Self::Pooler(..) => {
                format!("name = convert_from(decode('{hex}', 'hex'), 'UTF8')")
            }
            Self::Mysql(..) => format!("name = x'{hex}'"),
        }
    }

    fn url(&self) -> String {
        let (url, options) = match self {
            Self::Postgres(server) => (server.url(), ""),
            Self::Pooler(_, pooler) => (pooler.url(), "&dlock.pooler=true"),
            Self::Mysql(server, options) => (server.url(), *options),
        };
        let and = if url.contains('?') { '&' } else { '?' };
        // The response timeout is long, for a busy machine.
        let patient = "dlock.response_timeout=30s";
        format!("{url}{and}dlock.create_schema=true&{patient}{options}")
    }
}

async fn connect(url: &str) -> Result<DynBackend, Error> {
    if let Some(url) = url.strip_suffix(AS_MYSQL) {
        let config = MysqlConfig::from_url(&url.parse()?)?.with_returning(false);
        return Box::pin(Mysql::open(config)).await;
    }
    Registry::new().with(POSTGRES).with(MYSQL).connect(url.parse()?, &[]).await
}
