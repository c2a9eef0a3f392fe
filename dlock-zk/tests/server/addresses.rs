//! A host name that stands for several addresses, some of which do not answer.

use std::{sync::Arc, time::Duration};

use dlock_core::{LockOptions, Locks};
use dlock_testlab::{Stop, Verdict, rerun_with_addresses, server_of_rerun};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use crate::support::{connect, run, server, until, works};

/// The addresses of `localhost`, in the order in which they are tried.
const ADDRESSES: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];

/// An address that leads to the server until the test makes it silent.
struct Way {
    silent: watch::Sender<bool>,
    /// The number of connections that are open.
    open: Arc<()>,
    _task: JoinSet<()>,
}

impl Way {
    async fn to(server: &str, address: &str, port: u16) -> Result<Self, Stop> {
        let listener = TcpListener::bind((address, port)).await?;
        let (silent, server) = (watch::Sender::new(false), server.to_owned());
        let (open, switch) = (Arc::new(()), silent.subscribe());
        let (count, mut task) = (Arc::clone(&open), JoinSet::new());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, count, mut switch) = (server.clone(), Arc::clone(&count), switch.clone());
                connections.spawn(async move {
                    let Ok(mut onward) = TcpStream::connect(server).await else { return };
                    let pass = async {
                        let _count = count;
                        let _ = copy_bidirectional(&mut client, &mut onward).await;
                    };
                    let silent = tokio::select! {
                        silent = async { switch.wait_for(|silent| *silent).await.is_ok() } => silent,
                        () = pass => false,
                    };
                    if silent {
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Ok(Self { silent, open, _task: task })
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.open) > 2
    }

    fn silence(&self) {
        self.silent.send_replace(true);
    }
}

/// Returns the address of the server, if `localhost` has the [`ADDRESSES`] here, and a port that is
/// free on all of them.
async fn prepared() -> Result<Option<(String, u16)>, Stop> {
    let Some(server) = server_of_rerun() else { return Ok(None) };
    let port = TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?.port();
    Ok(Some((server, port)))
}

/// Runs this test again where `localhost` has the [`ADDRESSES`].
async fn rerun(test: &str) -> Verdict {
    let server = server().await?;
    rerun_with_addresses(test, &server.address(), &ADDRESSES).await
}

#[test]
fn an_address_that_swallows_packets_is_passed_over() {
    run(async {
        let Some((server, port)) = prepared().await? else {
            return rerun("addresses::an_address_that_swallows_packets_is_passed_over").await;
        };
        let mut ways = Vec::new();
        for address in ADDRESSES {
            ways.push(Way::to(&server, address, port).await?);
        }
        ways[0].silence();
        ways[1].silence();
        works(&connect(&format!("zk://localhost:{port}")).await?, "a").await
    })
}

#[test]
fn a_lock_outlives_a_server_that_goes_silent() {
    run(async {
        let Some((server, port)) = prepared().await? else {
            return rerun("addresses::a_lock_outlives_a_server_that_goes_silent").await;
        };
        let mut ways = Vec::new();
        for address in ADDRESSES {
            ways.push(Way::to(&server, address, port).await?);
        }
        let url = format!("zk://localhost:{port}?dlock.session_timeout=30s");
        let options = LockOptions::new().with_lease(Duration::from_secs(15));
        let locks = Locks::new(connect(&url).await?)?.with_options(options)?;
        let guard = locks.mutex("a")?.lock().await?;
        // Other connections read the server's settings once.
        until("one connection is left", async || {
            Ok(ways.iter().filter(|way| way.is_used()).count() == 1)
        })
        .await?;
        let used = ways.iter().position(Way::is_used).ok_or("no connection")?;
        ways[used].silence();
        let others = || ways.iter().enumerate().filter(|(at, _)| *at != used);
        until("another server is used", async || Ok(others().any(|(_, way)| way.is_used())))
            .await?;
        let mut before = guard.remaining();
        until("the lock is renewed", async || {
            guard.check()?;
            let now = guard.remaining();
            Ok(std::mem::replace(&mut before, now) < now)
        })
        .await?;
        guard.release().await?;
        Ok(())
    })
}

#[test]
fn an_ipv6_address_works() {
    run(async {
        let server = server().await?;
        let Ok(free) = TcpListener::bind(("::1", 0)).await else {
            return Err(Stop::missing("this machine has no IPv6"));
        };
        let port = free.local_addr()?.port();
        drop(free);
        let _way = Way::to(&server.address(), "::1", port).await?;
        works(&connect(&format!("zk://[::1]:{port}")).await?, "a").await
    })
}
