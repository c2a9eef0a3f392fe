//! The number of connections of a client, and the addresses of the server.

use std::time::Duration;

use dlock_core::{AcquireRequest, ErrorKind, Renewal, Renewed};
use dlock_sql::Mysql;
use dlock_testlab::{Proxy, mariadb::Options};
use tokio::time::sleep;

use crate::support::{
    attempt, config, connect, exclusive, free, server, server_with, take, with_mariadb,
};

fn renewal(request: &AcquireRequest) -> Renewal {
    Renewal::new(request.as_claim(), request.mode, request.lease)
}

#[test]
fn a_client_opens_connections_as_it_needs_them() {
    with_mariadb(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        for returning in [true, false] {
            let before = proxy.connections();
            let url = server.url().replace(&server.address(), &proxy.address());
            let config = config(&format!("{url}?dlock.response_timeout=30s"))?;
            let client = Mysql::open(config.with_returning(returning)).await?;
            let attempted = attempt("try");
            take(&client, &attempted).await?;
            free(&client, &attempted).await?;
            assert_eq!(proxy.connections() - before, 1);
            for name in ["a", "b", "c", "d", "e", "f"] {
                let held = attempt(name);
                take(&client, &held).await?;
                client.renew(&[renewal(&held)]).await?;
                client.inspect(&held.name).await?;
                free(&client, &held).await?;
            }
            // The sweep may run at the same time.
            assert!(proxy.connections() - before <= 2);
        }
        Ok(())
    });
}

#[test]
fn a_server_without_room_for_statements_costs_no_lock() {
    with_mariadb(async {
        let server = server().await?;
        for returning in [true, false] {
            let client = Mysql::open(config(&server.url())?.with_returning(returning)).await?;
            let held = [exclusive("a"), exclusive("\u{fc}'b")];
            for held in &held {
                take(&client, held).await?;
            }
            server.run_sql("SET GLOBAL max_prepared_stmt_count = 0").await?;
            // New connections have no prepared statements.
            server.terminate_backends().await?;
            let renewals: Vec<_> = held.iter().map(renewal).collect();
            for renewals in [&renewals[..], &renewals[..1]] {
                for renewed in client.renew(renewals).await? {
                    assert!(matches!(renewed, Renewed::Kept), "{renewed:?}");
                }
            }
            assert_eq!(client.inspect(&held[1].name).await?.holders.len(), 1);
            let other = connect(&server).await?;
            let another = exclusive("c");
            take(&other, &another).await?;
            for held in &held {
                free(&client, held).await?;
            }
            assert!(other.inspect(&held[1].name).await?.is_free());
            free(&other, &another).await?;
            server.run_sql("SET GLOBAL max_prepared_stmt_count = 16382").await?;
        }
        Ok(())
    });
}

#[test]
fn a_server_without_room_for_connections_is_named() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_max_connections(10)).await?;
        let mut others = Vec::new();
        let url = format!("{}?dlock.response_timeout=2s", server.url());
        let error = loop {
            assert!(others.len() < 20, "there is room");
            match Mysql::open(config(&url)?).await {
                Ok(other) => others.push(other),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("limit of connections"), "{error}");
        others.pop();
        let opened = loop {
            match Mysql::open(config(&url)?).await {
                // The server has not noticed yet that a connection has been closed.
                Err(error) if error.is_transient() => sleep(Duration::from_millis(20)).await,
                opened => break opened?,
            }
        };
        take(&opened, &exclusive("a")).await?;
        Ok(())
    });
}

#[test]
fn an_ipv6_address_leads_to_the_server() {
    with_mariadb(async {
        let server =
            server_with(&Options::new().with_config("bind_address = 127.0.0.1,::1")).await?;
        let url = server.url().replace("127.0.0.1", "[::1]");
        let client = Mysql::open(config(&url)?).await?;
        take(&client, &exclusive("a")).await?;
        Ok(())
    });
}
