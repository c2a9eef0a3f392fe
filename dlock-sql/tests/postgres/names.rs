//! Names are compared byte for byte, and nothing in them is interpreted as SQL.

use dlock_core::{DynBackend, Locks, MultiMutex};
use dlock_testlab::{Verdict, postgres::PostgresServer};

use crate::support::{
    connect, exclusive, free, granted, queue, run, server, start, start_pooler, take, works_fully,
};

const NAMES: [&str; 22] = [
    "a",
    "A",
    "á",
    "a\u{301}",
    "ａ",
    "a ",
    " a",
    "ß",
    "ss",
    "it's",
    "it''s",
    r"it\'s",
    r"\",
    r"\\",
    r"\x41",
    "\"a\"",
    "$1",
    "$2::text",
    "-- a",
    "'; DROP TABLE dlock_lock; --",
    "{a,\"b\"}",
    "%s;🔒",
];

/// Each name is a separate lock: acquired alone, with many others, and after a hand-off.
async fn all_differ(server: &PostgresServer, client: &DynBackend, other: &DynBackend) -> Verdict {
    let requests = NAMES.map(exclusive);
    for request in &requests {
        take(client, request).await?;
    }
    let mut found = server.query("select name from dlock_lock").await?.concat();
    found.sort();
    let mut names = NAMES.map(str::to_owned);
    names.sort();
    assert_eq!(found, names);
    let waiting = NAMES.map(exclusive);
    for request in &waiting {
        queue(other, request).await?;
        assert_eq!(other.inspect(&request.name).await?.waiters.len(), 1, "{}", request.name);
    }
    for request in &requests {
        free(client, request).await?;
    }
    for request in &waiting {
        granted(other, request).await?;
        free(other, request).await?;
    }
    let all = NAMES.map(exclusive);
    if let Some(answer) = client.acquire_all(&all) {
        answer.await?;
        for request in &all {
            free(client, request).await?;
        }
    }
    Ok(())
}

#[test]
fn names_that_look_alike_are_different_locks() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        all_differ(&server, &client, &other).await
    });
}

#[test]
fn names_that_look_alike_are_different_locks_behind_a_pooler() {
    run(async {
        for line in ["on", "off"] {
            let (server, bouncer) = start_pooler(&[]).await?;
            let sql = format!("alter role dlock set standard_conforming_strings = {line}");
            server.run_sql(&sql).await?;
            let url = format!("{}?dlock.pooler=true", bouncer.url());
            let (client, other) = (connect(&url).await?, connect(&url).await?);
            all_differ(&server, &client, &other).await?;
        }
        Ok(())
    });
}

#[test]
fn schemas_with_hostile_names_work() {
    run(async {
        let (server, bouncer) = start_pooler(&[]).await?;
        for schema in [
            "it's $1",
            "a\n-- $1 \u{fc}",
            "FROM dlock_lock ",
            "to_regclass('dlock_lock')",
            "\"\"",
            "dlock_lock",
        ] {
            let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
            server.query_at(&server.url(), &format!("create schema {quoted}")).await?;
            server.run_sql(&format!("alter role dlock set search_path = {quoted}")).await?;
            let options = "dlock.create_schema=true&dlock.response_timeout=20s";
            let own = format!("{}?{options}", server.url());
            let (client, other) = (connect(&own).await?, connect(&own).await?);
            works_fully(&client, &other, "a").await?;
            // The pooler's sessions still have an earlier search path.
            server.terminate_backends().await?;
            let pooled = connect(&format!("{}?dlock.pooler=true&{options}", bouncer.url())).await?;
            works_fully(&pooled, &connect(&own).await?, "a").await?;
            let found = server.query(&format!("select count(*) from {quoted}.dlock_lock")).await?;
            assert_ne!(found.concat(), ["0"], "{schema}");
        }
        Ok(())
    });
}

/// Without a database in the URL, the server uses the one of the user's name.
#[test]
fn a_store_is_named_after_the_database_of_its_user() {
    run(async {
        let server = server().await?;
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for user in ["one", "two"] {
            server.run_sql(&format!("create role {user} login password 'secret'")).await?;
            server.run_sql(&format!("create database {user} owner {user}")).await?;
            let named = server.url_of(user, "secret", user);
            let named = connect(&format!("{named}?dlock.create_schema=true")).await?;
            for ending in ["", "?dbname=", "?dlock.plain=row&dlock.create_schema=true"] {
                let client = connect(&server.url_of(user, "secret", ending)).await?;
                let mode = if ending.contains("plain") { " (plain)" } else { "" };
                assert_eq!(client.store(), format!("{}{mode}", named.store()), "{ending:?}");
            }
            let unnamed = connect(&server.url_of(user, "secret", "")).await?;
            parts.push(Locks::new(unnamed)?.mutex("a")?);
            others.push(Locks::new(named)?.mutex("a")?);
        }
        // In stores of one name, they would be one lock.
        let both = MultiMutex::across(parts)?.lock().await?;
        for other in others {
            assert!(other.try_lock().await?.is_none(), "{other:?}");
        }
        both.release().await?;
        Ok(())
    });
}
