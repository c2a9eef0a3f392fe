//! A pooler that gives each transaction another connection.

use dlock_core::{ConfigIssue, ErrorKind, WakeUp};
use dlock_testkit::Stop;
use tokio::task::JoinSet;

use crate::support::{
    connect, exclusive, free, refused, run, says, start_pooler, take, works, works_fully,
};

#[test]
fn locks_work_through_a_pooler_with_few_connections() {
    run(async {
        let (_server, bouncer) = start_pooler(&["default_pool_size = 2"]).await?;
        let url = format!("{}?dlock.pooler=true", bouncer.url());
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(connect(&url).await?);
        }
        assert_eq!(clients[0].guarantees().wake_up, WakeUp::Poll);
        works_fully(&clients[0], &clients[1], "a").await?;
        let mut working = JoinSet::new();
        for (at, client) in clients.into_iter().enumerate() {
            working.spawn(async move {
                for _ in 0..20 {
                    works(&client, &format!("b{at}")).await?;
                }
                Ok::<(), Stop>(())
            });
        }
        while let Some(worked) = working.join_next().await {
            worked??;
        }
        Ok(())
    });
}

#[test]
fn the_tables_can_be_created_through_a_pooler() {
    run(async {
        let (server, bouncer) = start_pooler(&[]).await?;
        server.run_sql("drop table dlock_lock, dlock_schema").await?;
        let url = format!("{}?dlock.pooler=true&dlock.create_schema=true", bouncer.url());
        works(&connect(&url).await?, "a").await
    });
}

/// Another client of the pooler leaves it in a session that all clients share.
#[test]
fn a_temporary_table_of_a_shared_session_is_not_used() {
    run(async {
        let (server, bouncer) = start_pooler(&["default_pool_size = 1"]).await?;
        let url = format!("{}?dlock.pooler=true", bouncer.url());
        let (client, alone) = (connect(&url).await?, connect(&server.url()).await?);
        let left = "create temp table dlock_lock (like public.dlock_lock including all)";
        server.query_at(&bouncer.url(), left).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        assert_eq!(alone.inspect(&held.name).await?.holders.len(), 1);
        free(&client, &held).await?;
        works_fully(&client, &alone, "b").await?;
        let foreign = ErrorKind::Config(ConfigIssue::ForeignStore);
        says(&refused(&url).await?, foreign, "a temporary table");
        Ok(())
    });
}

#[test]
fn an_undeclared_pooler_is_refused_with_the_option() {
    run(async {
        let (_server, bouncer) = start_pooler(&[]).await?;
        let needed = ErrorKind::Config(ConfigIssue::OptionValue);
        says(&refused(&bouncer.url()).await?, needed, "dlock.pooler=true");
        Ok(())
    });
}

#[test]
fn a_refused_login_is_explained() {
    run(async {
        let (_server, bouncer) = start_pooler(&[]).await?;
        let wrong = bouncer.url().replace("secret", "secret-but-wrong");
        let url = format!("{wrong}?dlock.pooler=true");
        let access = ErrorKind::Config(ConfigIssue::Access);
        says(&refused(&url).await?, access, "check user and password");
        Ok(())
    });
}

#[test]
fn a_pooler_that_is_killed_costs_no_lock() {
    run(async {
        let (_server, bouncer) = start_pooler(&[]).await?;
        let client = connect(&format!("{}?dlock.pooler=true", bouncer.url())).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        bouncer.restart().await?;
        crate::support::renew(&client, &held).await?;
        free(&client, &held).await
    });
}
