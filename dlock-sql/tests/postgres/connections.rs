//! The number of connections of a client, and the addresses of the server.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind, Renewal, WakeUp};
use dlock_testlab::{
    Proxy, Stop,
    client::SOON,
    postgres::{Options, PostgresServer},
    rerun_with_addresses, server_of_rerun,
};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::{
    attempt, connect, create, end_others, exclusive, fill, free, granted, queue, refused, renew,
    run, says, server, start, take, until, works,
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

/// The core abandons a renewal after a third of its lease, and can't name the cause then.
#[test]
fn a_renewal_soon_names_a_server_without_room() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_max_connections(12)).await?;
        for plain in ["", "&dlock.plain=row"] {
            // Longer than the test waits.
            let url = format!("{}&dlock.response_timeout=60s{plain}", create(&server));
            let client = connect(&url).await?;
            let held = attempt("a");
            take(&client, &held).await?;
            end_others(&server, &[]).await?;
            let _others = fill(&server).await?;
            let renewal = Renewal::new(held.as_claim(), held.mode, Duration::from_secs(6));
            let renewed = timeout(SOON, client.renew(&[renewal])).await?;
            let error = renewed.err().ok_or_else(|| Stop::failed("there is room"))?;
            says(&error, ErrorKind::Unavailable, "limit of connections");
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

/// Accepts connections at ::1, which the system tries first, and never answers.
async fn silent(port: u16) -> Result<TcpListener, Stop> {
    TcpListener::bind(("::1", port)).await.map_err(|_| Stop::missing("IPv6 is off"))
}

/// Makes `localhost` resolve to an address that accepts connections and never answers, and to the
/// server.
#[test]
fn a_silent_address_of_a_name_does_not_matter() {
    const TEST: &str = "connections::a_silent_address_of_a_name_does_not_matter";
    run(async {
        if let Some(url) = server_of_rerun() {
            let client = connect(&url).await?;
            let other = connect(&url).await?;
            // The listener has to find the server, too.
            let (held, waiting) = (exclusive("a"), exclusive("a"));
            take(&client, &held).await?;
            queue(&other, &waiting).await?;
            free(&client, &held).await?;
            granted(&other, &waiting).await?;
            return free(&other, &waiting).await;
        }
        let (server, _) = start().await?;
        let _silent = silent(server.port()).await?;
        let url = server.url().replace("127.0.0.1", "localhost");
        rerun_with_addresses(TEST, &format!("{url}?sslmode=disable"), &["::1", "127.0.0.1"]).await
    });
}

/// The certificate is for `localhost` and for 127.0.0.1, so an attempt by address at 127.0.0.3
/// would fail.
#[cfg(all(feature = "tls", target_os = "linux"))]
#[test]
fn a_silent_address_does_not_matter_with_tls() {
    const TEST: &str = "connections::a_silent_address_does_not_matter_with_tls";
    run(async {
        if let Some(url) = server_of_rerun() {
            return works(&connect(&url).await?, "a").await;
        }
        let options =
            Options::new().with_tls().with_config("listen_addresses = '127.0.0.1,127.0.0.3'");
        let server = PostgresServer::start(&options).await?;
        let _silent = silent(server.port()).await?;
        let url = server.tls_url().ok_or_else(|| Stop::failed("no TLS"))?;
        let by_address = refused(&url.replace("127.0.0.1", "127.0.0.3")).await?;
        says(&by_address, ErrorKind::Config(ConfigIssue::Access), "sslrootcert");
        let url = url.replace("127.0.0.1", "localhost");
        let url = format!("{url}&dlock.create_schema=true");
        rerun_with_addresses(TEST, &url, &["::1", "127.0.0.3"]).await
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
