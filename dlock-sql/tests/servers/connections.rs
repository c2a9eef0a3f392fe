//! Connections to a server without room for more, and to one behind a silent address.

use std::time::Duration;

use dlock_core::{ErrorKind, Renewal};
use dlock_testlab::{
    Stop,
    client::{SOON, granted, queue, says},
    rerun_with_addresses, server_of_rerun,
};
use tokio::{net::TcpListener, time::timeout};

use crate::support::{
    Store, UNENCRYPTED, attempt, config, end_others, exclusive, fill, free, run, server_of_few,
    set_up, take,
};

/// The core abandons a renewal after a third of its lease, and can't name the cause then.
#[test]
fn a_renewal_soon_names_a_server_without_room() {
    run(async {
        let server = server_of_few().await?;
        for plain in ["", "&dlock.plain=row&dlock.create_schema=true"] {
            // Longer than the test waits.
            let url = format!("{}?dlock.response_timeout=60s{plain}", server.url());
            let client = Store::open(config(&url)?).await?;
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

/// Accepts connections at ::1, which the system tries first, and never answers.
pub(crate) async fn silent(port: u16) -> Result<TcpListener, Stop> {
    TcpListener::bind(("::1", port)).await.map_err(|_| Stop::missing("IPv6 is off"))
}

/// Makes `localhost` resolve to an address that accepts connections and never answers, and to the
/// server.
#[test]
fn a_silent_address_of_a_name_does_not_matter() {
    const TEST: &str = "servers::connections::a_silent_address_of_a_name_does_not_matter";
    run(async {
        if let Some(url) = server_of_rerun() {
            let client = Store::open(config(&url)?).await?;
            let other = Store::open(config(&url)?).await?;
            // PostgreSQL's listener has to find the server, too.
            let (held, waiting) = (exclusive("a"), exclusive("a"));
            take(&client, &held).await?;
            queue(&other, &waiting).await?;
            free(&client, &held).await?;
            granted(&other, &waiting).await?;
            return free(&other, &waiting).await;
        }
        let server = set_up().await?;
        let _silent = silent(server.port()).await?;
        let url = format!("{}{UNENCRYPTED}", server.url().replace("127.0.0.1", "localhost"));
        rerun_with_addresses(TEST, &url, &["::1", "127.0.0.1"]).await
    });
}
