//! The findings about a server, and the guarantees, which follow each setting that they depend on.

use dlock_core::{DynBackend, Exclusion, Fencing, Finding, Level};
use dlock_testkit::found::{self, only};
use dlock_testlab::{
    Stop, Verdict,
    postgres::{Options, PostgresServer},
};

use crate::support::{connect, create, run, server, start, until, works};

/// The findings that are not fine.
async fn amiss(client: &DynBackend) -> Result<Vec<Finding>, Stop> {
    found::amiss(client, 6).await
}

async fn well() -> Result<(PostgresServer, DynBackend), Stop> {
    let server = PostgresServer::start(&Options::new().with_fsync(true)).await?;
    for setting in ["full_page_writes", "synchronous_commit", "autovacuum"] {
        server.run_sql(&format!("alter system set {setting} = on")).await?;
    }
    server.run_sql("select pg_reload_conf()").await?;
    // Without this right, sessions of the administrator that are closing would be hidden.
    server.run_sql("grant pg_read_all_stats to dlock").await?;
    let client = connect(&create(&server)).await?;
    Ok((server, client))
}

#[test]
fn a_durable_server_is_fine() {
    run(async {
        let (server, client) = well().await?;
        assert_eq!(amiss(&client).await?, []);
        for mode in ["dlock.plain=row", "dlock.pooler=true"] {
            let client = connect(&format!("{}&{mode}", create(&server))).await?;
            assert_eq!(amiss(&client).await?, [], "{mode}");
        }
        Ok(())
    });
}

#[test]
fn relaxed_durability_is_reported() {
    run(async {
        let (server, _) = well().await?;
        let relaxed = connect(&format!("{}?dlock.durability=relaxed", server.url())).await?;
        only(&amiss(&relaxed).await?, "durability", Level::Warning, "dlock.durability");
        Ok(())
    });
}

#[test]
fn a_missing_table_and_a_missing_right_are_wrong() {
    run(async {
        let (server, _) = well().await?;
        server.run_sql("create role worker login password 'secret'").await?;
        server.run_sql("grant select, insert, update, delete on dlock_lock to worker").await?;
        server.run_sql("grant select on dlock_schema to worker").await?;
        server.run_sql("grant pg_read_all_stats to worker").await?;
        let client = connect(&server.url_of("worker", "secret", "dlock")).await?;
        assert_eq!(amiss(&client).await?, []);
        server.run_sql("revoke update on dlock_lock from worker").await?;
        only(&amiss(&client).await?, "tables", Level::Wrong, "");
        let found = &amiss(&client).await?[0];
        assert!(format!("{found:?}").contains("UPDATE"), "{found:?}");
        server.run_sql("drop table dlock_lock").await?;
        only(&amiss(&client).await?, "tables", Level::Wrong, "create_schema");
        Ok(())
    });
}

#[test]
fn a_server_without_fsync_is_reported() {
    run(async {
        let (server, client) = start().await?;
        server.run_sql("alter system set fsync = off").await?;
        server.run_sql("select pg_reload_conf()").await?;
        let findings = amiss(&client).await?;
        assert!(findings.iter().all(|finding| finding.level < Level::Wrong), "{findings:?}");
        let found = findings.iter().find(|finding| finding.about == "durability");
        assert!(found.is_some_and(|finding| finding.found.contains("fsync")), "{findings:?}");
        Ok(())
    });
}

#[test]
fn limits_of_the_user_and_of_the_database_are_reported() {
    run(async {
        let (server, client) = well().await?;
        for (of, remedy) in [("role", "the user's"), ("database", "the database's")] {
            server.run_sql(&format!("alter {of} dlock connection limit 9")).await?;
            only(&amiss(&client).await?, "connections", Level::Warning, remedy);
            server.run_sql(&format!("alter {of} dlock connection limit -1")).await?;
        }
        assert_eq!(amiss(&client).await?, []);
        Ok(())
    });
}

#[test]
fn connections_reserved_for_other_roles_are_not_left() {
    run(async {
        let known = "select 1 from pg_settings where name = 'reserved_connections'";
        if server().await?.query(known).await?.is_empty() {
            return Err(Stop::undecided("only PostgreSQL 16 and later reserve connections"));
        }
        let options = Options::new().with_config("reserved_connections = 80");
        let server = PostgresServer::start(&options).await?;
        let mut found = connect(&create(&server)).await?.examine().await?;
        found.retain(|finding| finding.about == "connections");
        only(&found, "connections", Level::Warning, "max_connections");
        Ok(())
    });
}

#[test]
fn the_advisory_mode_reports_that_it_examines_nothing() {
    run(async {
        let (server, _) = start().await?;
        let client = connect(&format!("{}&dlock.advisory=true", create(&server))).await?;
        let findings = client.examine().await?;
        only(&findings, "mode", Level::Warning, "dlock.advisory");
        Ok(())
    });
}

#[test]
fn hidden_transactions_are_not_reported_as_fine() {
    run(async {
        let (server, _client) = well().await?;
        server.run_sql("create role worker login password 'secret'").await?;
        server.run_sql("grant select, insert, update, delete on dlock_lock to worker").await?;
        server.run_sql("grant select on dlock_schema to worker").await?;
        let client = connect(&server.url_of("worker", "secret", "dlock")).await?;
        let remedy = "pg_read_all_stats";
        only(&amiss(&client).await?, "transactions", Level::Warning, remedy);
        let found = &amiss(&client).await?[0].found;
        assert!(found.contains("not visible"), "{found}");
        // The times of a session whose activity is not tracked.
        server.run_sql("grant pg_read_all_stats to worker").await?;
        assert_eq!(amiss(&client).await?, []);
        server.run_sql("alter role worker set track_activities = off").await?;
        let untracked = connect(&server.url_of("worker", "secret", "dlock")).await?;
        only(&amiss(&untracked).await?, "transactions", Level::Warning, "track_activities = on");
        Ok(())
    });
}

/// Also to a superuser, who may act as each role.
#[test]
fn roles_that_may_run_code_as_others_are_reported() {
    run(async {
        let (server, client) = well().await?;
        let admin = connect(&server.admin_url()).await?;
        server.run_sql("create role mallory; create role team; grant team to dlock").await?;
        for (right, about, remedy) in [
            ("create on schema public", "schema rights", "FROM mallory"),
            ("trigger on dlock_lock", "table rights", "FROM mallory"),
            ("references on dlock_lock", "table rights", "FROM mallory"),
        ] {
            server.run_sql(&format!("grant {right} to mallory")).await?;
            for client in [&client, &admin] {
                let found = amiss(client).await?;
                let found: Vec<_> = found.into_iter().filter(|one| one.about == about).collect();
                only(&found, about, Level::Warning, remedy);
            }
            server.run_sql(&format!("revoke {right} from mallory")).await?;
            // The user is a member of this role.
            server.run_sql(&format!("grant {right} to team")).await?;
            assert!(amiss(&client).await?.is_empty(), "{right}");
            server.run_sql(&format!("revoke {right} from team")).await?;
        }
        Ok(())
    });
}

#[test]
fn everything_that_keeps_old_row_versions_is_reported() {
    run(async {
        let (server, client) = well().await?;
        server.run_sql("alter table dlock_lock set (autovacuum_enabled = off)").await?;
        only(&amiss(&client).await?, "vacuum", Level::Warning, "RESET (autovacuum_enabled)");
        server.run_sql("alter table dlock_lock reset (autovacuum_enabled)").await?;
        let late = "autovacuum_vacuum_threshold";
        server.run_sql(&format!("alter table dlock_lock set ({late} = 1000000)")).await?;
        only(&amiss(&client).await?, "vacuum", Level::Warning, late);
        server.run_sql(&format!("alter table dlock_lock reset ({late})")).await?;
        set(&server, late, "1000000").await?;
        only(&amiss(&client).await?, "vacuum", Level::Warning, late);
        set(&server, late, "50").await?;
        set(&server, "track_counts", "off").await?;
        only(&amiss(&client).await?, "vacuum", Level::Warning, "track_counts = on");
        set(&server, "track_counts", "on").await?;
        server.run_sql("select pg_create_physical_replication_slot('left', true)").await?;
        only(&amiss(&client).await?, "slots", Level::Warning, "pg_replication_slots");
        server.run_sql("select pg_drop_replication_slot('left')").await?;
        server.run_sql("grant create on schema public to public").await?;
        only(&amiss(&client).await?, "schema rights", Level::Warning, "FROM PUBLIC");
        Ok(())
    });
}

/// The oldest transaction id of the server counts, in whatever database it is.
#[test]
fn old_transaction_ids_of_another_database_are_reported() {
    run(async {
        let (server, client) = start().await?;
        // So that nothing is frozen meanwhile.
        set(&server, "autovacuum", "off").await?;
        let freezing = async || {
            let mut found = client.examine().await?;
            found.retain(|finding| finding.about == "freezing");
            Ok::<_, Stop>(found)
        };
        assert_eq!(freezing().await?[0].level, Level::Fine);
        server
            .run_sql(
                "update pg_database set datfrozenxid = \
                 ((txid_current() - 700000000) & 4294967295)::text::xid \
                 where datname = 'template1'",
            )
            .await?;
        let found = freezing().await?;
        only(&found, "freezing", Level::Warning, "VACUUM FREEZE");
        assert!(found[0].found.contains("template1"), "{found:?}");
        Ok(())
    });
}

#[test]
fn row_versions_that_stay_for_a_standby_are_reported() {
    run(async {
        let (server, client) = well().await?;
        let options = Options::new()
            .standby_of(&server)
            .with_config("hot_standby_feedback = on")
            .with_config("wal_receiver_status_interval = 1");
        let standby = PostgresServer::start(&options).await?;
        let follows = "select 1 from pg_stat_replication where state = 'streaming'";
        until("the standby follows", async || Ok(!server.query(follows).await?.is_empty())).await?;
        let standbys = async || {
            let mut found = amiss(&client).await?;
            found.retain(|finding| finding.about == "standbys");
            Ok::<_, Stop>(found)
        };
        assert_eq!(standbys().await?, []);
        server.run_sql("revoke pg_read_all_stats from dlock").await?;
        let found = standbys().await?;
        only(&found, "standbys", Level::Warning, "pg_read_all_stats");
        assert!(found[0].found.contains("not visible"), "{found:?}");
        server.run_sql("grant pg_read_all_stats to dlock").await?;

        let reported = async {
            let reads = "select 1 from pg_stat_activity where wait_event = 'PgSleep'";
            until("it reads", async || Ok(!standby.query(reads).await?.is_empty())).await?;
            let many = "do $$ begin for i in 1..110000 loop perform txid_current(); commit; \
                        end loop; end $$";
            server.run_sql(many).await?;
            until("it is reported", async || Ok(!standbys().await?.is_empty())).await?;
            only(&standbys().await?, "standbys", Level::Warning, "hot_standby_feedback");
            Ok::<_, Stop>(())
        };
        tokio::select! {
            read = standby.query("select pg_sleep(600)") => {
                Err(Stop::failed(format!("the query has ended: {read:?}")))
            }
            reported = reported => reported,
        }
    });
}

/// Changes a setting of the server.
async fn set(server: &PostgresServer, name: &str, value: &str) -> Verdict {
    server.run_sql(&format!("ALTER SYSTEM SET {name} = {value}")).await?;
    server.run_sql("SELECT pg_reload_conf()").await?;
    let show = format!("SHOW {name}");
    until(name, async || Ok(server.query(&show).await?.concat() == [value])).await
}

/// Uses the client until it promises this level of exclusion.
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
        // The settings of one user, and of the table behind a view.
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
        // Writes from before may still be missing on the disk.
        set(&server, "fsync", "on").await?;
        works(&client, "a").await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Nothing);

        let client = open("").await?;
        server.run_sql("ALTER TABLE dlock_lock SET UNLOGGED").await?;
        until_promises(&client, Exclusion::Nothing).await?;
        server.run_sql("ALTER TABLE dlock_lock SET LOGGED").await?;

        // New sessions of this user have another setting than older ones.
        let client = open("").await?;
        server.run_sql("ALTER ROLE dlock SET synchronous_commit = off").await?;
        server.terminate_backends().await?;
        until_promises(&client, Exclusion::Nothing).await
    });
}
