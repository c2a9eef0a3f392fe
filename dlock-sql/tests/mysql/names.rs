//! Names are compared byte for byte.

use dlock_core::LockName;
use dlock_sql::Mysql;
use dlock_testkit::Stop;

use crate::support::{
    attempt, config, connect, connect_plainly, exclusive, free, server, take, with_mariadb,
};

const NAMES: [&str; 20] = [
    "a", "A", "ä", "a\u{308}", "á", "ａ", "a ", " a", "a  ", "'a'", "\"a\"", "`a`", "a\\", "a\\\\",
    "a%", "a_", "?", "\\0", "ß", "🔒",
];

#[test]
fn names_that_look_alike_are_different_locks() {
    with_mariadb(async {
        let server = server().await?;
        for client in [connect(&server).await?, connect_plainly(&server).await?] {
            // One by one and together, since the two statements read names in different ways.
            let alone: Vec<_> = NAMES.iter().map(|name| attempt(name)).collect();
            for request in &alone {
                take(&client, request).await?;
            }
            let mut found = server.query("SELECT HEX(name) FROM dlock_lock").await?.concat();
            let mut expected: Vec<_> = NAMES.iter().map(|name| hex(name)).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected);
            for request in &alone {
                free(&client, request).await?;
            }
            let together: Vec<_> = NAMES.iter().map(|name| exclusive(name)).collect();
            for answer in client.acquire_all(&together).expect("known").await? {
                assert!(matches!(answer, dlock_core::Acquired::Granted(_)), "{answer:?}");
            }
            for request in &together {
                free(&client, request).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn the_longest_name_is_a_name_like_any_other() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        let long = "x".repeat(LockName::MAX_BYTES - 1);
        let requests = [exclusive(&format!("{long}a")), exclusive(&format!("{long}b"))];
        for request in &requests {
            take(&client, request).await?;
            free(&client, request).await?;
        }
        let both = client.acquire_all(&requests).expect("known").await?;
        assert_eq!(both.len(), 2);
        Ok::<_, Stop>(())
    });
}

/// One statement contains the name of the database, and another one reads it.
#[test]
fn databases_with_hostile_names_work() {
    with_mariadb(async {
        let server = server().await?;
        for (database, in_url) in [
            ("DATABASE()", "DATABASE()"),
            ("FROM dlock_lock x", "FROM%20dlock_lock%20x"),
            ("it`s ? ü", "it%60s%20%3F%20%C3%BC"),
        ] {
            let quoted = format!("`{}`", database.replace('`', "``"));
            server.run_sql(&format!("CREATE DATABASE {quoted}")).await?;
            let url = server.admin_url();
            let (base, _) = url.rsplit_once('/').ok_or_else(|| Stop::failed("no path"))?;
            let url = format!("{base}/{in_url}?dlock.create_schema=true");
            let client = Mysql::open(config(&url)?).await?;
            let held = exclusive("a");
            take(&client, &held).await?;
            assert_eq!(client.inspect(&held.name).await?.holders.len(), 1, "{database}");
            client.examine().await?;
            free(&client, &held).await?;
            let found = server.query(&format!("SELECT COUNT(*) FROM {quoted}.dlock_lock")).await?;
            assert_eq!(found.concat(), ["1"], "{database}");
        }
        Ok::<_, Stop>(())
    });
}

fn hex(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02X}")).collect()
}
