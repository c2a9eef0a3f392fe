//! Poolers, and proxies that drop the settings of a connection.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind, WakeUp};
use dlock_sql::{Postgres, PostgresConfig};
use dlock_testlab::{
    Stop,
    postgres::{Options, PostgresServer},
};
use sqlx::postgres::PgPoolOptions;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use crate::{
    sessions::{leave, open, pool},
    support::{
        connect, create, exclusive, free, refused, run, says, start, start_pooler, take, works,
        works_fully,
    },
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

const OPTION: ErrorKind = ErrorKind::Config(ConfigIssue::OptionValue);

/// The error text of AWS RDS Proxy.
const NO_OPTIONS: &str = "SFATAL\0VFATAL\0C0A000\0Mfeature not supported: RDS Proxy currently doesn't \
                          support command-line options.\0\0";

/// Passes connections to the server, but refuses those whose startup message contains `options`.
/// Returns its address.
async fn refuses_options(server: &PostgresServer) -> Result<String, Stop> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, server) = (listener.local_addr()?, server.address());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(client, server.clone()));
        }
    });
    Ok(address.to_string())
}

async fn pass_on(mut client: TcpStream, server: String) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    let mut startup = vec![0; usize::try_from(length).unwrap_or(0).saturating_sub(4)];
    client.read_exact(&mut startup).await?;
    if startup.split(|&byte| byte == 0).any(|word| word == b"options") {
        let length = u32::try_from(NO_OPTIONS.len()).unwrap_or(0) + 4;
        let answer = [&b"E"[..], &length.to_be_bytes(), NO_OPTIONS.as_bytes()].concat();
        return client.write_all(&answer).await;
    }
    let mut server = TcpStream::connect(server).await?;
    server.write_u32(length).await?;
    server.write_all(&startup).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[test]
fn a_proxy_without_startup_settings_gets_them_later() {
    run(async {
        let (server, other) = start().await?;
        let proxy = refuses_options(&server).await?;
        let url = server.url().replace(&server.address(), &proxy);
        works_fully(&connect(&url).await?, &other, "a").await?;
        let relaxed = connect(&format!("{url}?dlock.durability=relaxed")).await?;
        works_fully(&relaxed, &other, "b").await?;
        works(&connect(&format!("{url}?dlock.pooler=true")).await?, "c").await?;
        let theirs = refused(&format!("{url}?options[search_path]=public")).await?;
        says(&theirs, OPTION, "remove options");
        Ok(())
    });
}

/// Without the settings, a statement would continue after its client has stopped waiting.
#[test]
fn a_pooler_that_drops_settings_is_refused() {
    run(async {
        let ignore = "ignore_startup_parameters = extra_float_digits,options";
        let (_server, bouncer) = start_pooler(&[ignore]).await?;
        says(&refused(&bouncer.url()).await?, OPTION, "dlock.pooler=true");
        let pool = PgPoolOptions::new().max_connections(1).connect(&bouncer.url()).await?;
        let error = open(&pool).await.err().ok_or_else(|| Stop::failed("it is let in"))?;
        says(&error, OPTION, "dlock.pooler=true");
        works(&connect(&format!("{}?dlock.pooler=true", bouncer.url())).await?, "a").await
    });
}

#[test]
fn sessions_outlive_the_idle_timeout_of_the_server() {
    run(async {
        let options = Options::new().with_config("idle_session_timeout = 300ms");
        let server = PostgresServer::start(&options).await?;
        let client = connect(&create(&server)).await?;
        works(&client, "a").await?;
        let sessions = "SELECT pid FROM pg_stat_activity WHERE usename = 'dlock' ORDER BY pid";
        // A client may still be opening sessions for earlier requests.
        let mut before = server.query(sessions).await?;
        loop {
            sleep(Duration::from_millis(200)).await;
            let now = server.query(sessions).await?;
            if now == before {
                break;
            }
            before = now;
        }
        sleep(Duration::from_secs(2)).await;
        let after = server.query(sessions).await?;
        assert!(!before.is_empty() && before.iter().all(|one| after.contains(one)), "{after:?}");
        Ok(())
    });
}

/// The driver does not learn that its prepared statements were dropped.
#[test]
fn statements_dropped_by_the_application_are_prepared_again() {
    run(async {
        let (server, other) = start().await?;
        let shared = pool(&server).await?;
        let client = open(&shared).await?;
        for left in ["DISCARD ALL", "DEALLOCATE ALL"] {
            works(&client, "a").await?;
            leave(&shared, left).await?;
            works_fully(&client, &other, "a").await?;
        }
        // As some pools do after each use.
        let options = PgPoolOptions::new().max_connections(1).after_release(|conn, _| {
            Box::pin(async move { sqlx::raw_sql("DISCARD ALL").execute(conn).await.map(|_| true) })
        });
        let tidy = options.connect(&server.url()).await?;
        let client = Postgres::open(PostgresConfig::from_pool(tidy)?).await?;
        for _ in 0..3 {
            works_fully(&client, &other, "b").await?;
        }
        Ok(())
    });
}
