//! Free ports.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use crate::Stop;

/// Ports of the loopback interface that were free just now, all different. Somebody may take one
/// before the server does: who starts a server tries again then.
pub(crate) fn free<const N: usize>() -> Result<[u16; N], Stop> {
    let mut ports = [0; N];
    // All are held until the last is known, or the system might give the same one twice.
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// The ports that no system gives out by itself, neither to servers nor to clients.
const QUIET: Range<u16> = 15_000..32_000;

/// How many of them to try. Hardly any is taken.
const ATTEMPTS: usize = 1000;

/// The same, but no connection of a client will come to have one of them by accident. For a server
/// that does not listen all the time, or not soon.
pub(crate) fn quiet<const N: usize>() -> Result<[u16; N], Stop> {
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let mut attempts = (0..ATTEMPTS).map(|_| rand::random_range(QUIET));
        let found = attempts.find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        let listener = found.ok_or_else(|| Stop::failed(format!("{QUIET:?} are all taken")))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    #[test]
    fn ports_differ() {
        for ports in [super::free, super::quiet] {
            let [a, b, c] = ports().unwrap();
            assert!(a != b && b != c && a != c);
        }
    }
}
