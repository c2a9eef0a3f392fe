//! The number of connections of a client, and the addresses of the server.

use std::{process::Command, time::Duration};

use dlock_core::{ErrorKind, LockOptions, Locks, WakeUp};
use dlock_testlab::{
    Proxy, Stop,
    postgres::{Options, PostgresServer},
};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{
    attempt, connect, create, exclusive, fill, free, granted, queue, renew, run, server, start,
    take, until, works,
};

#[test]
fn a_client_opens_connections_as_it_needs_them() {
    run(async {
        let (server, other) = start().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let client = connect(&format!("{url}?dlock.response_timeout=30s")).await?;
        let attempted = attempt("try");
        take(&client, &attempted).await?;
        free(&client, &attempted).await?;
        assert_eq!(proxy.connections(), 1);
        for name in ["a", "b", "c", "d", "e", "f"] {
            // The names belong to different writers.
            take(&client, &attempt(name)).await?;
            works(&client, &format!("{name}2")).await?;
            client.inspect(&attempt(name).name).await?;
        }
        // The sweep may run at the same time.
        assert!(proxy.connections() <= 2, "{}", proxy.connections());
        assert_eq!(client.guarantees().wake_up, WakeUp::Push);
        let (held, waiting) = (exclusive("x"), exclusive("x"));
        take(&other, &held).await?;
        queue(&client, &waiting).await?;
        until("it listens", async || {
            let listens = "select 1 from pg_stat_activity where query ilike 'listen%'";
            Ok(server.query(listens).await?.len() == 1)
        })
        .await?;
        free(&other, &held).await?;
        granted(&client, &waiting).await?;
        renew(&client, &waiting).await?;
        free(&client, &waiting).await?;
        // One more for LISTEN, and one if a poll and a write were concurrent.
        assert!(proxy.connections() <= 4, "{}", proxy.connections());
        Ok(())
    });
}

/// If each client kept two connections, half of the clients would fill the server.
#[test]
fn twice_as_many_clients_as_connections_get_their_locks() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_max_connections(30)).await?;
        connect(&create(&server)).await?;
        let mut clients = JoinSet::new();
        for number in 0..60 {
            let url = format!("{}?dlock.response_timeout=60s", server.url());
            clients.spawn(async move {
                let client = loop {
                    match connect(&url).await {
                        Err(error) if error.is_transient() => {
                            sleep(Duration::from_millis(50)).await
                        }
                        connected => break connected?,
                    }
                };
                let held = exclusive(&format!("job {number}"));
                take(&client, &held).await?;
                sleep(Duration::from_millis(50)).await;
                renew(&client, &held).await?;
                free(&client, &held).await
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(|error| Stop::failed(error.to_string()))??;
        }
        Ok(())
    });
}

#[test]
fn an_ipv6_address_leads_to_the_server() {
    run(async {
        let options = Options::new().with_config("listen_addresses = '127.0.0.1, ::1'");
        let server = PostgresServer::start(&options).await?;
        let url = create(&server).replace("127.0.0.1", "[::1]");
        let client = connect(&url).await?;
        assert_eq!(client.store(), format!("postgres://[::1]:{}/dlock", server.port()));
        works(&client, "a").await
    });
}

/// Every way to write the address of a socket.
#[test]
fn a_unix_socket_url_can_contain_a_user() {
    run(async {
        let directory = tempfile::Builder::new().prefix("dlock-pg-").tempdir_in("/tmp")?;
        let path = directory.path().display();
        std::fs::set_permissions(
            directory.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )?;
        let line = format!("unix_socket_directories = '{path}'");
        let server = PostgresServer::start(&Options::new().with_config(&line)).await?;
        let port = server.port();
        works(&connect(&create(&server)).await?, "a").await?;
        let encoded = path.to_string().replace('/', "%2F");
        for url in [
            format!("postgres://dlock:secret@/dlock?host={path}&port={port}"),
            format!("postgres://dlock:secret@:{port}/dlock?host={path}"),
            format!("postgres://dlock:secret@{encoded}:{port}/dlock"),
            format!("postgres:///dlock?host={path}&port={port}&user=dlock&password=secret"),
        ] {
            works(&connect(&url).await?, "a").await?;
        }
        Ok(())
    });
}

#[test]
fn a_name_that_does_not_resolve_is_reported() {
    run(async {
        let server = server().await?;
        let url = server.url().replace("127.0.0.1", "nowhere.invalid");
        let error = connect(&format!("{url}?sslmode=disable&dlock.response_timeout=2s")).await;
        let error = error.err().ok_or_else(|| Stop::failed("it is found"))?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        Ok(())
    });
}

/// The server's processes behind all connections are paused, and new ones work.
#[test]
fn silent_connections_are_replaced_before_a_lease_expires() {
    run(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        let url = format!("{}&dlock.response_timeout=30s&dlock.connections=8", create(&server));
        // The database gets the lease and the lock-delay as one time.
        let options = LockOptions::new().with_lease(lease).with_lock_delay(Duration::from_secs(60));
        let locks = Locks::new(connect(&url).await?)?.with_options(options)?;
        let mut held = Vec::new();
        for name in ["a", "b", "c"] {
            held.push(locks.mutex(name)?.lock().await?);
        }
        let pids = "SELECT pid FROM pg_stat_activity WHERE usename = 'dlock'";
        let mut silent = Vec::new();
        until("there are several connections", async || {
            let tasks = (0..64).map(|number| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    locks.mutex(format!("short {number}"))?.lock().await?.release().await
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await??;
            }
            silent = server.query(pids).await?.concat();
            Ok(silent.len() >= 4)
        })
        .await?;
        let signal = |signal: &str| Command::new("kill").arg(signal).args(&silent).status();
        assert!(signal("-STOP")?.success());
        for _ in 0..8 {
            sleep(lease / 4).await;
            assert!(held.iter().all(|guard| guard.check().is_ok()));
        }
        signal("-CONT")?;
        Ok(())
    });
}

/// The renewer needs a connection of its own, and can't open one. A busy client would never have an
/// idle connection by itself.
#[test]
fn a_full_server_does_not_cost_a_lock_of_a_busy_client() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_max_connections(12)).await?;
        let url = format!("{}&dlock.response_timeout=30s", create(&server));
        let client = connect(&url).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        let others = fill(&server).await?;
        let mut busy = JoinSet::new();
        for task in 0..16 {
            let client = client.clone();
            busy.spawn(async move {
                for n in 0.. {
                    let short = exclusive(&format!("{task} {n}"));
                    take(&client, &short).await?;
                    free(&client, &short).await?;
                }
                Ok::<(), Stop>(())
            });
        }
        for _ in 0..10 {
            renew(&client, &held).await?;
        }
        busy.abort_all();
        while let Some(ended) = busy.join_next().await {
            if let Ok(ended) = ended {
                ended?;
            }
        }
        drop(others);
        free(&client, &held).await
    });
}
