//! Reads never use a server that accepts no writes.

use dlock_core::{Error, ErrorKind};
use dlock_testlab::{
    Proxy, Stop, Verdict,
    postgres::{Options, PostgresServer},
};

use crate::support::{connect, exclusive, name, run, start, take, until};

/// Whether it refuses the server. On a busy machine, a read may also get no answer in time.
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
