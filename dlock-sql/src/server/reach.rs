//! Connecting to a host name that has several addresses.
//!
//! The drivers try the addresses of a name one after another. If one drops packets, they wait until
//! the operating system gives up, which takes minutes. So dlock resolves the name itself, again for
//! each connect, and starts an attempt at the next address when one has failed, or the attempts
//! before have not succeeded within [`PAUSE`]. The first connection that is ready is used. An attempt
//! contains the login and the first answer, so a server that accepts a connection and stays silent
//! does not win.
//!
//! The drivers have one option for the address and for the name in the certificate. So with TLS the
//! first attempt is the driver's own, by name. On Linux the others go through a relay: the driver
//! connects to a Unix socket of this process, still checks the certificate for the name, and the
//! relay copies the encrypted bytes to and from one address. Its socket has a name in the abstract
//! namespace, so there is no file. It accepts one connection, from this process.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::ControlFlow,
    time::Duration,
};

use dlock_core::{Certainty::NotApplied, race};

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
    let reached = race(attempts, pause, judge).await;
    reached.unwrap_or_else(|| Err(Fault::cut("the host name has no address: check it")))
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

/// Keeps the first error that a server has sent, and else the last one. An error that no retry
/// remedies, such as a wrong password, ends the race: another address would give the same answer.
fn judge(kept: Option<Fault>, fault: Fault) -> ControlFlow<Fault, Fault> {
    if fault.remedy == Remedy::None {
        return ControlFlow::Break(fault);
    }
    let from_server = kept.filter(|kept| kept.error.certainty() == NotApplied);
    ControlFlow::Continue(from_server.unwrap_or(fault))
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
    use std::future::ready;

    use dlock_core::{Certainty::Unknown, ConfigIssue};

    use super::*;

    #[tokio::test]
    async fn the_error_is_that_of_a_server_if_one_answered() {
        let (refused, standby) = (Fault::cut, Fault::passing);
        let wrong = |text| Fault::config(ConfigIssue::Access, text);
        for (faults, text) in [
            (vec![refused("a"), refused("b")], "b"),
            (vec![standby("a"), refused("b")], "a"),
            (vec![refused("a"), standby("b")], "b"),
            (vec![standby("a"), wrong("b"), refused("c")], "b"),
        ] {
            let attempts = faults.into_iter().map(|fault| ready(Err::<(), _>(fault)));
            let fault = race(attempts, PAUSE, judge).await.unwrap().unwrap_err();
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
