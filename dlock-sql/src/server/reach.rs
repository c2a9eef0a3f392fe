//! Connecting to a host name that has several addresses.
//!
//! The drivers try the addresses of a name one after another. If one drops packets, they wait until
//! the operating system gives up, which takes minutes. So dlock resolves the name itself, again for
//! each connect, and starts an attempt at the next address when the attempts before have failed, or
//! have not succeeded within [`PAUSE`] (as in RFC 8305). The first connection that is ready is
//! used. An attempt contains the login and the first answer, so a server that accepts a connection
//! and stays silent does not win.
//!
//! The drivers have one option for the address and for the name in the certificate. So with TLS the
//! first attempt is the driver's own, by name. On Linux the others go through a relay: the driver
//! connects to a Unix socket of this process, still checks the certificate for the name, and the
//! relay copies the encrypted bytes to and from one address. Its socket has a name in the abstract
//! namespace, so there is no file. It accepts one connection, from this process.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    pin::Pin,
    time::Duration,
};

use dlock_core::Certainty::NotApplied;
use tokio::time::timeout;

use crate::engine::{Fault, Remedy};

/// The longest time for which an address is tried alone.
const PAUSE: Duration = Duration::from_millis(250);

/// The options of a driver.
pub(crate) trait Target: Clone + Send + Sync {
    /// Returns the host and the port. `None` for a Unix socket.
    fn host_and_port(&self) -> Option<(&str, u16)>;

    /// Returns whether the connection may be encrypted.
    fn is_encrypted(&self) -> bool;

    /// Returns options that lead to this address instead.
    fn at(self, address: IpAddr) -> Self;

    /// Returns options that lead through a Unix socket, whose path begins with this text, and that
    /// path.
    fn through(self, socket: &str) -> (Self, String);
}

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// As the driver finds it.
    Driver,
    Address(SocketAddr),
    Relay(SocketAddr),
}

/// Connects: `attempt` gets the options, and returns a connection that is ready. The caller bounds
/// the time of the whole by `limit`.
pub(crate) async fn reach<T: Target, C, F>(
    target: &T,
    limit: Duration,
    classify: fn(sqlx::Error) -> Fault,
    attempt: impl Fn(T) -> F + Sync,
) -> Result<C, Fault>
where
    F: Future<Output = Result<C, Fault>> + Send,
{
    let addresses = addresses(target).await.map_err(|error| classify(error.into()))?;
    let routes = routes(&addresses, target.is_encrypted());
    let pause = PAUSE.min(limit / u32::try_from(2 * routes.len()).unwrap_or(u32::MAX));
    let attempt = &attempt;
    let attempts = routes.into_iter().map(|route| {
        let target = target.clone();
        async move {
            match route {
                Route::Driver => attempt(target).await,
                Route::Address(address) => attempt(target.at(address.ip())).await,
                Route::Relay(address) => {
                    let relayed = relay::open(target, address, limit).await;
                    attempt(relayed.map_err(|error| classify(error.into()))?).await
                }
            }
        }
    });
    race(attempts, pause).await
}

/// Returns the addresses of a host name that has several. Otherwise the driver needs no help.
async fn addresses<T: Target>(target: &T) -> std::io::Result<Vec<SocketAddr>> {
    let Some((host, port)) = target.host_and_port() else { return Ok(Vec::new()) };
    if host.parse::<IpAddr>().is_ok() {
        return Ok(Vec::new());
    }
    let mut addresses = Vec::new();
    for address in tokio::net::lookup_host((host, port)).await? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn routes(addresses: &[SocketAddr], is_encrypted: bool) -> Vec<Route> {
    match addresses {
        [first, others @ ..] if !others.is_empty() => match is_encrypted {
            // The driver probably begins with the first address. Its resolver may return another
            // order, so the first address has a relay as well.
            true if relay::IS_POSSIBLE => std::iter::once(Route::Driver)
                .chain(others.iter().chain([first]).map(|&address| Route::Relay(address)))
                .collect(),
            true => vec![Route::Driver],
            false => addresses.iter().map(|&address| Route::Address(address)).collect(),
        },
        _ => vec![Route::Driver],
    }
}

/// Starts the attempts one after another, and returns the first success. An error that no retry
/// remedies, such as a wrong password, ends all: another address would give the same answer. Of
/// other errors the first one is returned that a server has sent, and else the last.
async fn race<C, F>(attempts: impl IntoIterator<Item = F>, pause: Duration) -> Result<C, Fault>
where
    F: Future<Output = Result<C, Fault>>,
{
    let mut waiting = attempts.into_iter().peekable();
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    let mut failed: Option<Fault> = None;
    loop {
        running.extend(waiting.next().map(Box::pin));
        let next = std::future::poll_fn(|cx| {
            for at in 0..running.len() {
                if let std::task::Poll::Ready(ended) = running[at].as_mut().poll(cx) {
                    drop(running.swap_remove(at));
                    return std::task::Poll::Ready(ended);
                }
            }
            std::task::Poll::Pending
        });
        let ended = match waiting.peek() {
            Some(_) => timeout(pause, next).await.ok(),
            None => Some(next.await),
        };
        match ended {
            Some(Ok(connected)) => return Ok(connected),
            Some(Err(fault)) => {
                let is_final = fault.remedy == Remedy::None;
                let is_told =
                    failed.as_ref().is_some_and(|fault| fault.error.certainty() == NotApplied);
                let last = if is_told && !is_final { failed.take() } else { None };
                let fault = last.unwrap_or(fault);
                if is_final || running.is_empty() && waiting.peek().is_none() {
                    return Err(fault);
                }
                failed = Some(fault);
            }
            None => {}
        }
    }
}

#[cfg(target_os = "linux")]
mod relay {
    use std::{io, net::SocketAddr, time::Duration};

    use tokio::{
        io::copy,
        net::{TcpStream, UnixListener},
        runtime::Handle,
        select,
        time::timeout,
    };

    use super::Target;
    use crate::engine::spawn;

    pub(super) const IS_POSSIBLE: bool = true;

    /// Opens a relay to this address. Returns the options that lead through it. It ends with the
    /// connection, or after `limit` without one.
    pub(super) async fn open<T: Target>(
        target: T,
        address: SocketAddr,
        limit: Duration,
    ) -> io::Result<T> {
        let socket = format!("\0dlock-relay-{:032x}", rand::random::<u128>());
        let (target, path) = target.through(&socket);
        let listener = UnixListener::bind(path)?;
        let server = TcpStream::connect(address).await?;
        server.set_nodelay(true)?;
        spawn(&Handle::current(), async move {
            let ended = relay(listener, server, limit).await;
            if let Err(error) = ended {
                tracing::debug!(target: "dlock", %error, "relay to the server ended");
            }
        });
        Ok(target)
    }

    async fn relay(
        listener: UnixListener,
        mut server: TcpStream,
        limit: Duration,
    ) -> io::Result<()> {
        let ours = i32::try_from(std::process::id()).ok();
        let accepting = async {
            loop {
                let (client, _) = listener.accept().await?;
                // Other users of this machine can connect to the socket, too.
                if client.peer_cred()?.pid() == ours {
                    return Ok::<_, io::Error>(client);
                }
            }
        };
        let mut client = timeout(limit, accepting).await.map_err(io::Error::from)??;
        drop(listener);
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        // The end of one direction ends both: a server that does not answer any more would keep the
        // other one open.
        select! {
            sent = copy(&mut from_client, &mut to_server) => sent,
            got = copy(&mut from_server, &mut to_client) => got,
        }
        .map(drop)
    }
}

/// Only Linux has sockets without a file.
#[cfg(not(target_os = "linux"))]
mod relay {
    use std::{io, net::SocketAddr, time::Duration};

    use super::Target;

    pub(super) const IS_POSSIBLE: bool = false;

    pub(super) async fn open<T: Target>(_: T, _: SocketAddr, _: Duration) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Returns the host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// Returns the host as it is written in a URL.
pub(crate) fn shown(host: &str) -> String {
    let host = bare(host);
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use dlock_core::{Certainty::Unknown, ConfigIssue};
    use tokio::time::{Instant, sleep};

    use super::*;

    type Attempt = Pin<Box<dyn Future<Output = Result<u8, Fault>>>>;

    fn works(number: u8) -> Attempt {
        Box::pin(ready(Ok(number)))
    }

    fn hangs() -> Attempt {
        Box::pin(pending())
    }

    fn fails(fault: fn(&'static str) -> Fault, text: &'static str) -> Attempt {
        Box::pin(async move { Err(fault(text)) })
    }

    fn refused(text: &'static str) -> Fault {
        Fault::cut(text)
    }

    fn standby(text: &'static str) -> Fault {
        Fault::passing(text)
    }

    fn wrong(text: &'static str) -> Fault {
        Fault::config(ConfigIssue::Access, text)
    }

    fn slow(number: u8) -> Attempt {
        Box::pin(async move {
            sleep(PAUSE * 3).await;
            Ok(number)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_costs_one_pause_and_a_refusal_none() {
        for (attempts, winner, pauses) in [
            (vec![works(1), works(2)], 1, 0),
            (vec![hangs(), works(2)], 2, 1),
            (vec![hangs(), hangs(), works(3)], 3, 2),
            (vec![fails(refused, "x"), works(2)], 2, 0),
            (vec![hangs(), fails(standby, "x"), works(3)], 3, 1),
            (vec![slow(1), hangs()], 1, 3),
            (vec![slow(1), slow(2)], 1, 3),
        ] {
            let began = Instant::now();
            assert_eq!(race(attempts, PAUSE).await.unwrap(), winner);
            let waited = began.elapsed();
            assert!(waited >= PAUSE * pauses && waited < PAUSE * (pauses + 1), "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_is_that_of_a_server_if_one_answered() {
        for (attempts, text) in [
            (vec![fails(refused, "a"), fails(refused, "b")], "b"),
            (vec![fails(standby, "a"), fails(refused, "b")], "a"),
            (vec![fails(refused, "a"), fails(standby, "b")], "b"),
            (vec![fails(standby, "a"), fails(wrong, "b"), works(1)], "b"),
            (vec![hangs(), fails(wrong, "b"), works(1)], "b"),
        ] {
            let fault = race(attempts, PAUSE).await.unwrap_err();
            assert!(fault.error.to_string().contains(text), "{}", fault.error);
        }
        assert_eq!(refused("a").error.certainty(), Unknown);
    }

    #[test]
    fn with_tls_the_driver_has_the_name() {
        let [a, b] = ["127.0.0.1:1", "[::1]:1"].map(|text| text.parse::<SocketAddr>().unwrap());
        assert_eq!(routes(&[], false), [Route::Driver]);
        assert_eq!(routes(&[a], true), [Route::Driver]);
        assert_eq!(routes(&[a, b], false), [Route::Address(a), Route::Address(b)]);
        let all = [Route::Driver, Route::Relay(b), Route::Relay(a)];
        let possible = if relay::IS_POSSIBLE { &all[..] } else { &all[..1] };
        assert_eq!(routes(&[a, b], true), possible);
    }

    #[test]
    fn only_an_ipv6_address_has_brackets_in_a_url() {
        for (host, is_bare, is_shown) in [
            ("[::1]", "::1", "[::1]"),
            ("fd00::2", "fd00::2", "[fd00::2]"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
            ("db.example.org", "db.example.org", "db.example.org"),
            ("/run/postgresql", "/run/postgresql", "/run/postgresql"),
        ] {
            assert_eq!((bare(host), &*shown(host)), (is_bare, is_shown));
        }
    }
}
