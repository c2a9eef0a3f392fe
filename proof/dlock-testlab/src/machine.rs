//! The machine that the servers run on: its free ports, installed programs and accounts.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::Range,
    path::PathBuf,
};

use rustix::process::geteuid;

use crate::Stop;

/// The ports that no system assigns automatically, neither to servers nor to clients. So a server
/// that does not listen all the time loses its port to no client's connection.
const PORTS: Range<u16> = 15_000..32_000;

/// The number of ports to try. Hardly any of them is taken.
const ATTEMPTS: usize = 1000;

/// Ports that no other server of this library gets while this value lives, in any process. So a
/// server that is killed or restarted keeps its port.
///
/// The servers use TCP only. A socket of UDP with the same number reserves the port, and the system
/// closes it when the process ends.
#[derive(Debug)]
pub(super) struct Reserved {
    _sockets: Vec<UdpSocket>,
}

/// Reserves ports of the loopback interface. They were free a moment ago. A process that reserves
/// nothing may take one before the server does; then the caller retries.
pub(super) fn free_ports<const N: usize>() -> Result<([u16; N], Reserved), Stop> {
    let mut ports = [0; N];
    let mut sockets = Vec::with_capacity(N);
    for port in &mut ports {
        let mut attempts = (0..ATTEMPTS).map(|_| rand::random_range(PORTS));
        let found = attempts.find_map(|port| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| socket)
        });
        let socket = found.ok_or_else(|| Stop::failed(format!("{PORTS:?} are all taken")))?;
        *port = socket.local_addr()?.port();
        sockets.push(socket);
    }
    Ok((ports, Reserved { _sockets: sockets }))
}

/// Returns the path of the program, as a shell would find it.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    // Some systems install servers in folders that are not on the path of an ordinary user.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// An account of the machine that is not root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// Returns the account for a server, or `None` if this process does not run as root. The
    /// account is the first of `preferred` that exists, or `nobody`.
    pub(super) fn instead_of_root(preferred: &[&str]) -> Result<Option<Self>, Stop> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let known = fs::read_to_string("/etc/passwd")?;
        let mut names = preferred.iter().chain(&["nobody"]);
        let found = names.find_map(|name| Self::find(&known, name));
        let missing = || {
            Stop::missing(
                "this is root, as whom the server refuses to run, and nobody else is there",
            )
        };
        found.map(Some).ok_or_else(missing)
    }

    fn find(known: &str, name: &str) -> Option<Self> {
        let accounts = known.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut named = accounts.filter(|fields| fields[0] == name);
        let fields = named.next()?;
        Some(Self { user: fields.get(2)?.parse().ok()?, group: fields.get(3)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let ([a, b, c], _reserved) = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
    }

    /// Each port is reserved once, although nothing listens on it.
    #[test]
    fn a_reserved_port_is_not_given_again() {
        let reserved: Vec<_> = (0..100).map(|_| free_ports::<10>().unwrap()).collect();
        let mut ports: Vec<_> = reserved.iter().flat_map(|(ports, _)| *ports).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 1000);
    }

    #[test]
    fn an_account_is_found_by_its_name() {
        let known = "root:x:0:0::/root:/bin/sh\nsql:x:101:104:SQL,,,:/:/bin/sh\nodd:x:-2:-2::/:\n";
        let sql = Account { user: 101, group: 104 };
        assert_eq!(Account::find(known, "sql"), Some(sql));
        assert_eq!(Account::find(known, "sq"), None);
        assert_eq!(Account::find(known, "odd"), None);
    }
}
