//! A guarantee follows each setting that it depends on, even if the setting changes later.

use dlock_core::{DynBackend, Exclusion, Fencing};
use dlock_testlab::{
    Stop, Verdict,
    postgres::{Options, PostgresServer},
};

use crate::support::{connect, create, run, until, works};

/// Has the server go by a setting.
async fn set(server: &PostgresServer, name: &str, value: &str) -> Verdict {
    server.run_sql(&format!("ALTER SYSTEM SET {name} = {value}")).await?;
    server.run_sql("SELECT pg_reload_conf()").await?;
    let show = format!("SHOW {name}");
    until(name, async || Ok(server.query(&show).await?.concat() == [value])).await
}

/// Uses the client until it promises this.
async fn until_promises(client: &DynBackend, exclusion: Exclusion) -> Verdict {
    until("it promises something else", async || {
        works(client, "a").await?;
        Ok(client.guarantees().exclusion == exclusion)
    })
    .await
}

#[test]
fn a_promise_needs_each_setting_that_it_depends_on() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_fsync(true)).await?;
        let promises = async |options: &str| {
            let client = connect(&format!("{}{options}", create(&server))).await?;
            Ok::<_, Stop>(client.guarantees())
        };
        for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
            set(&server, setting, "off").await?;
            assert_eq!(promises("").await?.exclusion, Exclusion::Nothing, "{setting}");
            let plain = promises("&dlock.plain=version").await?;
            assert_eq!(plain.fencing, Fencing::Volatile, "{setting}");
            set(&server, setting, "on").await?;
        }
        for value in ["on", "local", "remote_write", "remote_apply"] {
            set(&server, "synchronous_commit", value).await?;
            assert_eq!(promises("").await?.exclusion, Exclusion::Restart, "{value}");
        }
        // Of one user, and of what stands behind the name of the table.
        server.run_sql("ALTER ROLE dlock SET synchronous_commit = off").await?;
        assert_eq!(promises("").await?.exclusion, Exclusion::Nothing);
        server.run_sql("ALTER ROLE dlock RESET synchronous_commit").await?;
        assert_eq!(promises("").await?.exclusion, Exclusion::Restart);
        server
            .run_sql(
                "ALTER TABLE dlock_lock RENAME TO elsewhere; ALTER TABLE elsewhere SET UNLOGGED; \
                 CREATE VIEW dlock_lock AS SELECT * FROM elsewhere; \
                 ALTER VIEW dlock_lock OWNER TO dlock",
            )
            .await?;
        if let Ok(client) = connect(&server.url()).await {
            assert_eq!(client.guarantees().exclusion, Exclusion::Nothing);
        }
        Ok(())
    });
}

/// No new connection is made in the first two cases.
#[test]
fn a_setting_that_changes_is_seen_while_locks_are_used() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_fsync(true)).await?;
        let open = async |options: &str| {
            let client = connect(&format!("{}{options}", create(&server))).await?;
            assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
            Ok::<_, Stop>(client)
        };
        let (client, plain) = (open("").await?, open("&dlock.plain=version").await?);
        assert_eq!(plain.guarantees().fencing, Fencing::Durable);
        set(&server, "fsync", "off").await?;
        until_promises(&client, Exclusion::Nothing).await?;
        until_promises(&plain, Exclusion::Nothing).await?;
        assert_eq!(plain.guarantees().fencing, Fencing::Volatile);
        // Nobody can tell what is on the disk by now.
        set(&server, "fsync", "on").await?;
        works(&client, "a").await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Nothing);

        let client = open("").await?;
        server.run_sql("ALTER TABLE dlock_lock SET UNLOGGED").await?;
        until_promises(&client, Exclusion::Nothing).await?;
        server.run_sql("ALTER TABLE dlock_lock SET LOGGED").await?;

        // New sessions of this user are other than those before.
        let client = open("").await?;
        server.run_sql("ALTER ROLE dlock SET synchronous_commit = off").await?;
        server.terminate_backends().await?;
        until_promises(&client, Exclusion::Nothing).await
    });
}
