//! Another user of the database, with CREATE on the schema `public` and no right to dlock's tables,
//! creates operators, functions, types and views that dlock's statements could find there. None of them
//! may ever run.

mod qualified;

use std::fs;

use dlock_core::{Acquired, DynBackend, Level};
use dlock_sql::{Postgres, PostgresConfig};
use dlock_testlab::{
    Stop, Verdict,
    postgres::{Options, PgBouncer, PostgresServer},
};
use sqlx::postgres::PgPoolOptions;

use crate::support::{attempt, connect, exclusive, free, run, take, until, works, works_fully};

/// A sequence counts the code that ran, even in a transaction that was rolled back.
const PLANTS: &str = include_str!("plants.sql");

/// Schemas that are searched before and after the catalog.
const PATHS: [&str; 2] = ["public", "public, pg_catalog"];

struct Trap {
    server: PostgresServer,
}

impl Trap {
    /// A server that logs all statements, with the objects of the other user.
    async fn new(path: &str) -> Result<Self, Stop> {
        let lines = [
            "logging_collector = on",
            "log_filename = 'all'",
            "log_statement = 'all'",
            "log_line_prefix = '%u|'",
        ];
        let options = lines.into_iter().fold(Options::new(), Options::with_config);
        let server = PostgresServer::start(&options).await?;
        server.run_sql("create role mallory login password 'secret'").await?;
        server.run_sql("grant create, usage on schema public to mallory").await?;
        server.run_sql("create schema safe authorization dlock").await?;
        server.run_sql(&format!("alter role dlock set search_path = safe, {path}")).await?;
        server.query_at(&server.url_of("mallory", "secret", "dlock"), PLANTS).await?;
        // Without this, the test would prove nothing.
        for bait in ["select 'a'::text || 1::bigint", "select 1::numeric * 1::integer"] {
            server.query_at(&server.url(), bait).await?;
            assert_ne!(trapped(&server).await?, 0, "{bait}");
            server.run_sql("select setval('public.trap', 1, false)").await?;
        }
        Ok(Self { server })
    }

    /// Returns the statements of dlock's user that the server has logged. Statements of this test
    /// begin with a small letter, and those that begin with these words are the driver's.
    fn statements(&self) -> Result<Vec<String>, Stop> {
        let log = fs::read_to_string(self.server.directory().join("data/log/all"))?;
        // Further lines of a statement are indented.
        let log = log.replace("\n\t", "\u{1}");
        let lines = log.lines().filter_map(|line| line.strip_prefix("dlock|LOG:  "));
        let sent = lines.filter_map(|line| {
            let (kind, sql) = line.split_once(": ")?;
            let is_sent = ["statement", "execute"].iter().any(|sent| kind.starts_with(sent));
            let is_ours = sql.starts_with(|c: char| !c.is_lowercase())
                && !["LISTEN", "UNLISTEN", "DISCARD"].iter().any(|verb| sql.starts_with(verb));
            (is_sent && is_ours).then(|| sql.replace('\u{1}', "\n"))
        });
        Ok(sent.collect())
    }

    /// Checks that no code of the other user ran, and that no statement depended on the search
    /// path.
    async fn is_empty(&self, mode: &str) -> Verdict {
        assert_eq!(trapped(&self.server).await?, 0, "{mode}");
        // The server writes its log a little later.
        until("the server logs", async || Ok(self.statements()?.len() > 5)).await?;
        for sql in self.statements()? {
            assert_eq!(qualified::looked_up(&sql), Vec::<String>::new(), "{mode}: {sql}");
        }
        Ok(())
    }

    /// Uses all verbs of two clients, and the doctor.
    async fn tempt(&self, mode: &str, client: &DynBackend, other: &DynBackend) -> Verdict {
        if mode.contains("plain") || mode.contains("advisory") {
            let held = exclusive("a");
            works(client, mode).await?;
            take(client, &held).await?;
            assert_eq!(other.acquire(&attempt("a")).await?, Acquired::Busy);
            other.inspect(&held.name).await?;
            free(client, &held).await?;
        } else {
            works_fully(client, other, mode).await?;
        }
        let findings = client.examine().await?;
        if !mode.contains("advisory") {
            let rights = findings.iter().find(|found| found.about == "schema rights");
            let rights = rights.ok_or_else(|| Stop::failed("nothing about the schemas"))?;
            assert!(rights.found.contains("mallory"), "{rights:?}");
            assert_eq!(rights.level, Level::Warning);
        }
        self.is_empty(mode).await
    }
}

async fn trapped(server: &PostgresServer) -> Result<i64, Stop> {
    let found = server.query("select last_value from public.trap where is_called").await?;
    Ok(found.first().map_or(0, |row| row[0].parse().unwrap_or(i64::MAX)))
}

fn in_each(mode: &'static str, options: &'static str) {
    run(async move {
        for path in PATHS {
            let trap = Trap::new(path).await?;
            let url = format!("{}?dlock.create_schema=true{options}", trap.server.url());
            let (client, other) = (connect(&url).await?, connect(&url).await?);
            trap.tempt(mode, &client, &other).await?;
        }
        Ok(())
    });
}

#[test]
fn planted_operators_never_run() {
    in_each("own sessions", "");
}

#[test]
fn planted_operators_never_run_in_the_plain_modes() {
    in_each("plain=row", "&dlock.plain=row");
    in_each("plain=version", "&dlock.plain=version");
}

#[test]
fn planted_operators_never_run_in_the_advisory_mode() {
    in_each("advisory", "&dlock.advisory=true");
}

#[test]
fn planted_operators_never_run_on_a_pool() {
    run(async {
        for path in PATHS {
            let trap = Trap::new(path).await?;
            let pool = PgPoolOptions::new().max_connections(3).connect(&trap.server.url()).await?;
            let config = || PostgresConfig::from_pool(pool.clone());
            let client = Postgres::open(config()?.with_create_schema(true)).await?;
            let other = Postgres::open(config()?).await?;
            trap.tempt("pool", &client, &other).await?;
        }
        Ok(())
    });
}

#[test]
fn planted_operators_never_run_behind_a_pooler() {
    run(async {
        for path in PATHS {
            let trap = Trap::new(path).await?;
            let bouncer = PgBouncer::start(&trap.server, &[]).await?;
            let url = format!("{}?dlock.pooler=true&dlock.create_schema=true", bouncer.url());
            let (client, other) = (connect(&url).await?, connect(&url).await?);
            trap.tempt("pooler", &client, &other).await?;
        }
        Ok(())
    });
}
