//! Faults of the server and of its other clients.

use std::time::Duration;

use dlock_core::{Acquired, Certainty, ErrorKind, LockOptions, Locks};
use dlock_sql::Postgres;
use dlock_testlab::{
    SteppedClock, Stop, Verdict,
    postgres::{Options, PostgresServer},
};
use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;

use crate::support::{
    attempt, config, connect, create, exclusive, free, queue, refused, renew, run, says, start,
    take, until, works,
};

/// A connection of another program, with an open transaction.
async fn transaction(
    server: &PostgresServer,
    statement: &'static str,
) -> Result<PgConnection, Stop> {
    let mut other = PgConnection::connect(&server.admin_url()).await?;
    sqlx::raw_sql("begin").execute(&mut other).await?;
    sqlx::raw_sql(statement).execute(&mut other).await?;
    Ok(other)
}

/// A claim that only joins the queue of a held lock does not wait for the disk. Every grant does.
#[test]
fn a_killed_server_forgets_at_most_a_claim_that_just_joined() {
    run(async {
        // With this setting, a commit without a sync stays in memory.
        let options = Options::new().with_config("wal_writer_delay = 10s");
        let server = PostgresServer::start(&options).await?;
        let client = connect(&create(&server)).await?;
        let other = connect(&server.url()).await?;
        let [held, waiting, late] = ["a"; 3].map(exclusive);
        let first = take(&client, &held).await?;
        // The client must know that the lock is held.
        assert!(matches!(other.acquire(&attempt("a")).await?, Acquired::Busy));
        let unsafe_log = "select pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()";
        let before = server.query(unsafe_log).await?;
        queue(&other, &waiting).await?;
        let after = server.query(unsafe_log).await?;
        assert_ne!(before, after, "who joins waits for the disk");

        server.kill();
        server.restart().await?;
        renew(&client, &held).await?;
        let left = client.inspect(&held.name).await?;
        assert_eq!(left.waiters, [], "the test is of no use: what was written in a hurry is there");
        let asked = other.granted(&waiting).await;
        assert!(asked.is_err_and(|error| error.kind() == ErrorKind::NotHeld));

        // If the lock is free when the claim joins, the claim is granted, and the grant is not
        // lost.
        assert!(matches!(other.acquire(&attempt("a")).await?, Acquired::Busy));
        free(&client, &held).await?;
        let second = take(&other, &late).await?;
        assert!(second.token > first.token);
        server.kill();
        server.restart().await?;
        renew(&other, &late).await?;
        free(&other, &late).await
    });
}

#[test]
fn without_an_answer_the_outcome_is_unknown() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.response_timeout=4s", server.url());
        let client = connect(&url).await?;
        let request = exclusive("a");
        take(&client, &request).await?;
        server.pause()?;
        let error = client.release(&request.as_claim()).await;
        let read = client.inspect(&request.name).await;
        server.resume()?;
        let error = error.err().ok_or_else(|| Stop::failed("nobody has answered"))?;
        says(&error, ErrorKind::Unavailable, "dlock.response_timeout");
        assert_eq!(error.certainty(), Certainty::Unknown);
        assert!(read.is_err());
        // A release of the same claim settles the unknown outcome.
        client.release(&request.as_claim()).await?;
        works(&client, "a").await
    });
}

#[test]
fn a_locked_row_is_awaited_and_then_reported() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let lock = "select 1 from dlock_lock where name = 'a' for update";
        let mut other = transaction(&server, lock).await?;
        let url = format!("{}?dlock.response_timeout=4s", server.url());
        let hasty = connect(&url).await?;
        let error = hasty.acquire(&exclusive("a")).await.err();
        let error = error.ok_or_else(|| Stop::failed("it passed the lock"))?;
        says(&error, ErrorKind::Unavailable, "keep such transactions short");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        // Other rows and reads are not delayed.
        works(&hasty, "b").await?;
        assert_eq!(hasty.inspect(&held.name).await?.waiters.len(), 0);
        sqlx::raw_sql("rollback").execute(&mut other).await?;
        free(&client, &held).await
    });
}

#[test]
fn a_full_server_is_awaited_and_then_reported() {
    run(async {
        let options = Options::new().with_config("superuser_reserved_connections = 2");
        let server = PostgresServer::start(&options.with_max_connections(8)).await?;
        connect(&create(&server)).await?;
        server.run_sql("alter role dlock connection limit 1").await?;
        // The connections of the client that created the tables close one after the other.
        let mut only = loop {
            match PgConnection::connect(&server.url()).await {
                Ok(only) => break only,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let others = "SELECT 1 FROM pg_stat_activity WHERE usename = 'dlock'";
        while server.query(others).await?.len() > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let error = refused(&format!("{}?dlock.response_timeout=4s", server.url())).await?;
        says(&error, ErrorKind::Unavailable, "raise the limit");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        let url = server.url();
        let opening = connect(&url);
        let freeing = async {
            sqlx::raw_sql("select 1").execute(&mut only).await?;
            only.close().await?;
            Ok::<(), Stop>(())
        };
        let (opened, freed) = tokio::join!(opening, freeing);
        freed?;
        // One connection is enough.
        works(&opened?, "a").await
    });
}

#[test]
fn a_server_that_becomes_read_only_is_replaced_by_a_writer() {
    run(async {
        let (server, _) = start().await?;
        let client = connect(&format!("{}?dlock.response_timeout=4s", server.url())).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        server.run_sql("alter role dlock set default_transaction_read_only = on").await?;
        server.terminate_backends().await?;
        let error = client.release(&held.as_claim()).await.err();
        let error = error.ok_or_else(|| Stop::failed("it was written"))?;
        says(&error, ErrorKind::Unavailable, "address of the primary");
        server.run_sql("alter role dlock reset default_transaction_read_only").await?;
        free(&client, &held).await
    });
}

#[test]
fn opening_may_be_cancelled_at_any_point() {
    run(async {
        let (server, client) = start().await?;
        let url = server.url();
        for micros in [0, 500, 1000, 2000, 4000, 8000, 16000, 32000] {
            let mut opening = Box::pin(Postgres::open(config(&url)?));
            let _ = tokio::time::timeout(Duration::from_micros(micros), &mut opening).await;
            std::thread::spawn(move || drop(opening)).join().map_err(|_| Stop::failed("panic"))?;
        }
        works(&client, "a").await
    });
}

#[test]
fn another_default_isolation_level_is_harmless() {
    run(async {
        let line = "default_transaction_isolation = 'serializable'";
        let server = PostgresServer::start(&Options::new().with_config(line)).await?;
        let client = connect(&create(&server)).await?;
        let other = connect(&server.url()).await?;
        crate::support::works_fully(&client, &other, "a").await
    });
}

/// A lease that was granted while the clock was ahead ends an hour too late. So only the release
/// can free the lock, even if the server is unreachable for longer than a lease.
#[test]
fn a_lock_of_a_clock_that_was_ahead_is_released() {
    run(async {
        let clock = SteppedClock::start().await?;
        let server = PostgresServer::start(&Options::new().with_clock(&clock)).await?;
        let url = format!("{}&dlock.response_timeout=2s", create(&server));
        let lease = Duration::from_secs(2);
        let short = LockOptions::new().with_lease(lease);
        let locks = Locks::new(connect(&url).await?)?.with_options(short)?;
        let other = connect(&url).await?;
        clock.forward(Duration::from_secs(3600))?;
        let dropped = locks.mutex("dropped")?.lock().await?;
        let released = locks.mutex("released")?.lock().await?;
        clock.reset()?;
        server.kill();
        drop(dropped);
        let error = released.release().await.err();
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unavailable));
        sleep(lease).await;
        server.restart().await?;
        for name in ["dropped", "released"] {
            let (other, next) = (&other, attempt(name));
            // A server that has just started may take longer to answer.
            until(name, async || {
                Ok(matches!(other.acquire(&next).await, Ok(Acquired::Granted(_))))
            })
            .await?;
        }
        Ok(())
    });
}

#[test]
fn a_backend_may_outlive_its_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let kept = std::sync::Mutex::new(None);
    run(async {
        let (server, _) = start().await?;
        let config = config(&server.url())?;
        let opened =
            tokio::task::spawn_blocking(move || runtime().block_on(Postgres::open(config)));
        let client = opened.await??;
        // The runtime of the client has ended, and its connections with it.
        says(
            &client.acquire(&exclusive("a")).await.err().ok_or_else(|| Stop::failed("it works"))?,
            ErrorKind::Config(dlock_core::ConfigIssue::Runtime),
            "runtime",
        );
        *kept.lock().expect("a mutex") = Some(client);
        Verdict::Ok(())
    });
    drop(kept);
}
