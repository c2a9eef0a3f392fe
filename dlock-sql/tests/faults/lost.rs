//! A server that restarts without its last writes: it answers before they are on the disk, or it is
//! another server that did not have them yet. It loses no later writes.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, LockName, Mode, Renewal, Renewed};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testkit::{Stop, Verdict};
use dlock_testlab::{
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
};

use crate::connect;

const LEASE: Duration = Duration::from_secs(600);

/// The earlier contents of the table.
const SAVE: [&str; 2] =
    ["DROP TABLE IF EXISTS dlock_was", "CREATE TABLE dlock_was AS SELECT * FROM dlock_lock"];
const LOSE: [&str; 2] =
    ["DELETE FROM dlock_lock", "INSERT INTO dlock_lock SELECT * FROM dlock_was"];

/// A private server.
enum Server {
    Postgres(PostgresServer),
    Mysql(MariadbServer),
}

impl Server {
    fn url(&self) -> String {
        let url = match self {
            Self::Postgres(server) => server.url(),
            Self::Mysql(server) => server.url(),
        };
        let and = if url.contains('?') { '&' } else { '?' };
        format!("{url}{and}dlock.create_schema=true&dlock.retention=1h")
    }

    async fn query(&self, sql: &str) -> Verdict {
        match self {
            Self::Postgres(server) => server.query(sql).await?,
            Self::Mysql(server) => server.query(sql).await?,
        };
        Ok(())
    }
}

pub(crate) async fn writes_of_postgres() -> Verdict {
    let server = PostgresServer::start(&postgres::Options::new()).await?;
    writes(Server::Postgres(server)).await
}

pub(crate) async fn writes_of_mysql() -> Verdict {
    let server = MariadbServer::start(&mariadb::Options::new()).await?;
    writes(Server::Mysql(server)).await
}

/// A client that remembers a lost row appends to the current row, and does not fold the lost state
/// into it.
async fn writes(server: Server) -> Verdict {
    let url = server.url();
    let [client, other] = [connect(url.clone()).await?, connect(url.clone()).await?];
    one_row_in_a_statement(&server, &client, &other).await?;
    several_rows(&server, &client, &other).await?;
    if matches!(server, Server::Mysql(_)) {
        let config = MysqlConfig::from_url(&url.parse()?)?.with_returning(false);
        let [client, other] = [Mysql::open(config.clone()).await?, Mysql::open(config).await?];
        one_row_in_a_statement(&server, &client, &other).await?;
    }
    Ok(())
}

async fn one_row_in_a_statement(
    server: &Server,
    client: &DynBackend,
    other: &DynBackend,
) -> Verdict {
    let [first, next] = [ask("one"), ask("one")];
    take(client, &first).await?;
    run(server, SAVE).await?;
    client.release(&first.as_claim()).await?;
    run(server, LOSE).await?;
    other.acquire(&next).await?;
    claims(client, &next.name, &[first.claim, next.claim]).await?;
    client.release(&first.as_claim()).await?;
    claims(client, &next.name, &[next.claim]).await?;
    other.release(&next.as_claim()).await?;
    claims(client, &next.name, &[]).await
}

async fn several_rows(server: &Server, client: &DynBackend, other: &DynBackend) -> Verdict {
    let held = [ask("first"), ask("second")];
    for request in &held {
        take(client, request).await?;
    }
    run(server, SAVE).await?;
    let renewals = held
        .each_ref()
        .map(|request| Renewal::new(request.as_claim(), request.mode, request.lease));
    client.renew(&renewals).await?;
    run(server, LOSE).await?;
    let waiting = held.each_ref().map(|request| ask(request.name.as_str()));
    for request in &waiting {
        other.acquire(request).await?;
    }
    if client.renew(&renewals).await? != [Renewed::Kept; 2] {
        return Err(Stop::failed("what is held is not renewed"));
    }
    for (held, waiting) in held.iter().zip(&waiting) {
        claims(client, &held.name, &[held.claim, waiting.claim]).await?;
    }
    Ok(())
}

/// Makes these claims hold the lock and wait for it.
async fn claims(client: &DynBackend, name: &LockName, claims: &[ClaimId]) -> Verdict {
    let state = client.inspect(name).await?;
    let found = state.holders.iter().chain(&state.waiters).map(|state| state.claim);
    match found.eq(claims.iter().copied()) {
        true => Ok(()),
        false => Err(Stop::failed(format!("{name}: {claims:?} are not {state:?}"))),
    }
}

async fn run(server: &Server, statements: [&str; 2]) -> Verdict {
    for sql in statements {
        server.query(sql).await?;
    }
    Ok(())
}

async fn take(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match client.acquire(request).await? {
        Acquired::Granted(_) => Ok(()),
        other => Err(Stop::failed(format!("{}: {other:?}", request.name))),
    }
}

fn ask(lock: &str) -> AcquireRequest {
    AcquireRequest::new(LockName::new(lock).expect("a name"), Mode::Exclusive, LEASE)
}
