//! Servers that accept no writes or do not answer commits.

use dlock_core::{Error, ErrorKind};
use dlock_testlab::{
    Proxy, Stop, Verdict,
    postgres::{Options, PostgresServer},
};

use crate::support::{
    attempt, connect, create, exclusive, name, run, says, server, start, take, until, works,
};

/// More attempts than the pauses permit, and a fraction of the number without pauses.
const FEW: u64 = 16;

async fn through(server: &PostgresServer) -> Result<(Proxy, String), Stop> {
    let proxy = Proxy::start(&server.address()).await?;
    let url = server.url().replace(&server.address(), &proxy.address());
    Ok((proxy, format!("{url}?dlock.connections=1")))
}

#[test]
fn a_read_only_server_gets_few_connections() {
    run(async {
        let (server, _) = start().await?;
        let (proxy, url) = through(&server).await?;
        let client = connect(&url).await?;
        works(&client, "a").await?;
        for (sick, well, remedy) in [
            (
                "alter role dlock set default_transaction_read_only = on",
                "alter role dlock reset default_transaction_read_only",
                "address of the primary",
            ),
            (
                "alter role dlock connection limit 0",
                "alter role dlock connection limit -1",
                "raise the limit",
            ),
        ] {
            server.run_sql(sick).await?;
            server.terminate_backends().await?;
            let before = proxy.connections();
            let error = client.acquire(&attempt("b")).await.err();
            says(&error.ok_or_else(|| Stop::failed(sick))?, ErrorKind::Unavailable, remedy);
            let made = proxy.connections() - before;
            assert!(made <= FEW, "{made} connections for one try: {sick}");
            server.run_sql(well).await?;
            works(&client, "a").await?;
        }
        Ok(())
    });
}

/// No setting of the server ends a commit that waits for a missing standby.
#[test]
fn commits_that_wait_for_a_standby_do_not_pile_up() {
    run(async {
        let server = server().await?;
        let url = format!("{}&dlock.response_timeout=1s", create(&server));
        let client = connect(&url).await?;
        works(&client, "a").await?;
        server.run_sql("ALTER SYSTEM SET synchronous_standby_names = 'gone'").await?;
        server.run_sql("SELECT pg_reload_conf()").await?;
        // The server reads its configuration a moment later, and a lock that is taken until then is
        // found busy without a commit.
        let mut names = (0..).map(|n| format!("w{n}"));
        until("commits wait", async || {
            let name = names.next().ok_or("no name is left")?;
            Ok(client.acquire(&exclusive(&name)).await.is_err())
        })
        .await?;
        let wait = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        for n in 0..24 {
            let error = client.acquire(&exclusive(&format!("n{n}"))).await.err();
            let error = error.ok_or_else(|| Stop::failed("nobody waits for the standby"))?;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            // Each writer has one, and so has the renewal.
            let waiting = server.query(wait).await?.len();
            assert!(waiting <= 3, "{waiting} commits wait");
            let connections = server.connections().await?;
            assert!(connections <= 8, "{connections} connections");
        }
        server.run_sql("ALTER SYSTEM RESET synchronous_standby_names").await?;
        server.run_sql("SELECT pg_reload_conf()").await?;
        until("it writes again", async || Ok(works(&client, "a").await.is_ok())).await
    });
}

/// Returns whether an error refuses the server. On a busy machine, a read may also get no answer in
/// time.
fn names_primary(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.to_string().contains("address of the primary")
}

async fn until_refused(url: &str, change: impl AsyncFnOnce() -> Verdict) -> Verdict {
    let client = connect(url).await?;
    let held = exclusive("held");
    take(&client, &held).await?;
    assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
    change().await?;
    // A read may also get no answer in time, on a busy machine.
    let names_primary = |error: &Error| {
        error.kind() == ErrorKind::Unavailable
            && error.to_string().contains("address of the primary")
    };
    until("what it reads is refused", async || {
        Ok(client.inspect(&held.name).await.err().as_ref().is_some_and(names_primary))
    })
    .await?;
    until("a list is refused", async || {
        let listed = client.list("", 9).await.err();
        let error = listed.ok_or_else(|| Stop::failed("it lists what the standby knows"))?;
        Ok(names_primary(&error))
    })
    .await?;
    Ok(())
}

#[test]
fn a_standby_is_not_read_when_an_address_leads_there() {
    run(async {
        let (server, _) = start().await?;
        let standby = PostgresServer::start(&Options::new().standby_of(&server)).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        for mode in ["dlock.create_schema=true", "dlock.plain=row&dlock.create_schema=true"] {
            proxy.lead_to(&server.address());
            let url = format!("{url}?dlock.response_timeout=2s&{mode}");
            if mode.contains("plain") {
                let client = connect(&url).await?;
                take(&client, &exclusive("held")).await?;
                proxy.lead_to(&standby.address());
                server.terminate_backends().await?;
                until("the standby is refused", async || {
                    let seen = client.inspect(&name("held")).await.err();
                    let error = seen.ok_or_else(|| Stop::failed("it reads from the standby"))?;
                    Ok(names_primary(&error))
                })
                .await?;
                continue;
            }
            until_refused(&url, async || {
                proxy.lead_to(&standby.address());
                server.terminate_backends().await.map(drop)
            })
            .await?;
        }
        Ok(())
    });
}

/// Connections stay open through that.
#[test]
fn a_server_that_stops_taking_writes_is_not_read() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.response_timeout=2s", server.url());
        until_refused(&url, async || {
            server.run_sql("ALTER SYSTEM SET default_transaction_read_only = on").await?;
            server.run_sql("SELECT pg_reload_conf()").await
        })
        .await
    });
}
