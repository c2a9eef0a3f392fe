//! Free ports.

use std::{
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use crate::Stop;

/// Returns different ports of the loopback interface that were free a moment ago. Another process
/// may take one before the server does; then the caller retries.
pub(crate) fn free<const N: usize>() -> Result<[u16; N], Stop> {
    let mut ports = [0; N];
    // All listeners are held until the last port is known. Otherwise the system might return the
    // same port twice.
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// The ports that no system assigns automatically, neither to servers nor to clients.
const SERVER_ONLY: Range<u16> = 15_000..32_000;

/// The number of ports to try. Hardly any of them is taken.
const ATTEMPTS: usize = 1000;

/// Like `free`, but the system never assigns one of these ports to a client's connection. For a
/// server that does not listen at once or not all the time.
pub(crate) fn server_only<const N: usize>() -> Result<[u16; N], Stop> {
    let mut ports = [0; N];
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let mut attempts = (0..ATTEMPTS).map(|_| rand::random_range(SERVER_ONLY));
        let found = attempts.find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        let listener =
            found.ok_or_else(|| Stop::failed(format!("{SERVER_ONLY:?} are all taken")))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    #[test]
    fn ports_differ() {
        for ports in [super::free, super::server_only] {
            let [a, b, c] = ports().unwrap();
            assert!(a != b && b != c && a != c);
        }
    }
}
