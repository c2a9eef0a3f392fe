//! The rights of a user: the least rights are enough, and errors name missing ones and policies.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::{Stop, Verdict, postgres::PostgresServer, rights::claims_end_after_a_refusal};

use crate::support::{connect, exclusive, refused, run, says, start, works_fully};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

const RIGHTS: [(&str, &str); 5] = [
    ("select", "dlock_lock"),
    ("insert", "dlock_lock"),
    ("update", "dlock_lock"),
    ("delete", "dlock_lock"),
    ("select", "dlock_schema"),
];

async fn user(server: &PostgresServer) -> Result<String, Stop> {
    server.run_sql("create role worker login password 'secret'").await?;
    Ok(server.url_of("worker", "secret", "dlock"))
}

async fn grant(server: &PostgresServer) -> Verdict {
    for (right, table) in RIGHTS {
        server.run_sql(&format!("grant {right} on {table} to worker")).await?;
    }
    Ok(())
}

#[test]
fn minimal_rights_allow_locks_but_no_new_tables() {
    run(async {
        let (server, _) = start().await?;
        let url = user(&server).await?;
        grant(&server).await?;
        server.run_sql("revoke create on schema public from public").await?;
        let (client, other) = (connect(&url).await?, connect(&url).await?);
        works_fully(&client, &other, "a").await?;
        // The option is set, but the tables already exist.
        connect(&format!("{url}?dlock.create_schema=true")).await?;
        server.run_sql("drop table dlock_schema").await?;
        let error = refused(&format!("{url}?dlock.create_schema=true")).await?;
        says(&error, ACCESS, "CREATE on the schema");
        Ok(())
    });
}

#[test]
fn each_missing_right_is_named() {
    run(async {
        let (server, _) = start().await?;
        let url = user(&server).await?;
        for (right, table) in RIGHTS {
            grant(&server).await?;
            server.run_sql(&format!("revoke {right} on {table} from worker")).await?;
            let lacking = format!("({} on {table})", right.to_uppercase());
            says(&refused(&url).await?, ACCESS, &lacking);
        }
        Ok(())
    });
}

#[test]
fn a_revoked_right_is_reported() {
    run(async {
        let (server, _) = start().await?;
        let url = user(&server).await?;
        grant(&server).await?;
        let client = connect(&url).await?;
        server.run_sql("revoke insert on dlock_lock from worker").await?;
        let error = client.acquire(&exclusive("a")).await.err();
        let error = error.ok_or_else(|| Stop::failed("it is let in"))?;
        says(&error, ACCESS, "INSERT");
        Ok(())
    });
}

#[test]
fn claims_whose_release_is_refused_end_with_their_leases() {
    run(async {
        let (server, other) = start().await?;
        let url = user(&server).await?;
        grant(&server).await?;
        let client = connect(&url).await?;
        claims_end_after_a_refusal(&client, &other, Duration::from_secs(3), async |on| match on {
            true => grant(&server).await,
            false => server.run_sql("revoke all on dlock_lock from worker").await,
        })
        .await
    });
}

#[test]
fn row_level_security_without_a_policy_is_reported_at_start() {
    run(async {
        let (server, _) = start().await?;
        server.run_sql("create role worker login password 'secret'").await?;
        server.run_sql("grant select, insert, update, delete on dlock_lock to worker").await?;
        server.run_sql("grant select on dlock_schema to worker").await?;
        let url = server.url_of("worker", "secret", "dlock");
        for table in ["dlock_lock", "dlock_schema"] {
            server.run_sql(&format!("alter table {table} enable row level security")).await?;
            let error = refused(&url).await?;
            let lacking = format!("a policy of row-level security on {table}");
            says(&error, ErrorKind::Config(ConfigIssue::Access), &lacking);
            server
                .run_sql(&format!("create policy all_may on {table} to worker using (true)"))
                .await?;
        }
        let (client, other) = (connect(&url).await?, connect(&url).await?);
        works_fully(&client, &other, "a").await
    });
}
