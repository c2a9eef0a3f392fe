//! Row-level security, which denies everything where no policy allows it.

use dlock_core::{ConfigIssue, ErrorKind};

use crate::support::{connect, refused, run, says, start, works_fully};

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
