//! Free ports.

use std::net::{Ipv4Addr, TcpListener};

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

#[cfg(test)]
mod tests {
    #[test]
    fn ports_differ() {
        let [a, b, c] = super::free().unwrap();
        assert!(a != b && b != c && a != c);
    }
}
