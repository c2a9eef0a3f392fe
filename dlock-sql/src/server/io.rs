//! The check that the runtime has the I/O that a connection needs.

use std::net::Ipv4Addr;

/// Creates something that needs the I/O of tokio's runtime.
pub(crate) fn needs_io() -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket).map(drop)
}
