//! Reads never use a server that accepts no writes.

use dlock_core::ErrorKind;
use dlock_testlab::{
    Proxy, Stop, Verdict,
    postgres::{Options, PostgresServer},
};

use crate::support::{connect, exclusive, name, run, says, start, take, until};

async fn until_refused(url: &str, change: impl AsyncFnOnce() -> Verdict) -> Verdict {
    let client = connect(url).await?;
    let held = exclusive("held");
    take(&client, &held).await?;
    assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
    change().await?;
    let mut last = None;
    until("what it reads is refused", async || {
        last = client.inspect(&held.name).await.err();
        Ok(last.is_some())
    })
    .await?;
    says(&last.ok_or_else(|| Stop::failed("?"))?, ErrorKind::Unavailable, "address of the primary");
    let listed = client.list("", 9).await.err();
    let listed = listed.ok_or_else(|| Stop::failed("it lists what the standby knows"))?;
    says(&listed, ErrorKind::Unavailable, "address of the primary");
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
                let seen = client.inspect(&name("held")).await.err();
                let seen = seen.ok_or_else(|| Stop::failed("it reads from the standby"))?;
                says(&seen, ErrorKind::Unavailable, "address of the primary");
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
