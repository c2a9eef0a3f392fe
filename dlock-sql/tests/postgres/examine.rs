//! The findings about a server.

use dlock_core::{DynBackend, Finding, Level};
use dlock_testkit::found::{self, only};
use dlock_testlab::{
    Stop,
    postgres::{Options, PostgresServer},
};

use crate::support::{connect, create, run, start};

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
    // Sessions of the administrator, which are closing, would be hidden.
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
        Ok(())
    });
}

/// To a superuser too, who may act as each role.
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
        server.run_sql("select pg_create_physical_replication_slot('left', true)").await?;
        only(&amiss(&client).await?, "slots", Level::Warning, "pg_replication_slots");
        server.run_sql("select pg_drop_replication_slot('left')").await?;
        server.run_sql("grant create on schema public to public").await?;
        only(&amiss(&client).await?, "schema rights", Level::Warning, "FROM PUBLIC");
        Ok(())
    });
}
