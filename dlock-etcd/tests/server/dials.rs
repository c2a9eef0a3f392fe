//! How often a client connects to a member that does not serve it.

use std::time::Duration;

use dlock_core::{Clock, ErrorKind, Mode};
use dlock_testlab::{
    Proxy, Stop, Verdict,
    etcd::{EtcdServer, Options},
};
use futures_util::future::{Either, join_all, select};
use tokio::time::sleep;

use crate::support::{attempt, connect, exclusive, run, server, take, until};

/// The sum of the shortest pauses between connections: half of 20 ms, and twice as long after each, up
/// to half of a twelfth of the session.
fn least(connections: u64, session: Duration) -> Duration {
    let pause = |number: u32| (Duration::from_millis(20) * (1 << number)).min(session / 12) / 2;
    (1..connections).zip(0..).map(|(_, number)| pause(number)).sum()
}

/// Waits for this many connections. Fails if they took less than the [`least`] time.
async fn paced(proxy: &Proxy, connections: u64, session: Duration) -> Verdict {
    let (before, began) = (proxy.connections(), Clock::Boot.now());
    until("it is dialled", async || Ok(proxy.connections() - before >= connections)).await?;
    let (took, least) = (Clock::Boot.now().since(began), least(connections, session));
    println!("{connections} connections within {took:?}");
    assert!(took >= least, "{connections} connections within {took:?}, not {least:?}");
    Ok(())
}

#[test]
fn a_member_that_is_down_is_dialled_with_a_backoff() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let session = Duration::from_secs(60);
        let url =
            format!("etcd://{}?dlock.session_timeout={}s", proxy.address(), session.as_secs());
        let client = connect(&url).await?;
        take(&client, &exclusive("a")).await?;
        server.kill();
        // The number of callers does not matter.
        let callers = join_all((0..20).map(async |at| {
            loop {
                let request = attempt(&at.to_string(), Mode::Exclusive);
                match client.acquire(&request).await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    answer => return answer,
                }
            }
        }));
        let paced = Box::pin(paced(&proxy, 9, session));
        match select(paced, callers).await {
            Either::Left((paced, _)) => paced,
            Either::Right((answers, _)) => Err(Stop::failed(format!("{answers:?}"))),
        }
    });
}

/// After an election, a server without space for a new lease refuses each heartbeat at once. New
/// connections are served.
#[test]
fn a_member_that_refuses_heartbeats_is_dialled_with_a_backoff() {
    run(async {
        let server = EtcdServer::start(&Options::new().with_quota(4 << 20)).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let session = Duration::from_secs(12);
        let url =
            format!("etcd://{}?dlock.session_timeout={}s", proxy.address(), session.as_secs());
        let client = connect(&url).await?;
        take(&client, &exclusive("a")).await?;
        server.fill().await?;
        server.restart().await?;
        // The next heartbeat is due by then.
        sleep(session / 6).await;
        paced(&proxy, 8, session).await
    });
}
