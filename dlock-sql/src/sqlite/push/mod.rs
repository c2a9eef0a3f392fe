//! Notifications between engines over one file: a datagram to the socket of the waiter's engine.
//!
//! ```text
//! locks.db                    the file
//! locks.db-dlock-0a1b2c3d     the socket of the engine whose home is 0x0a1b2c3d
//! ```
//! A socket receives notifications of grants, one in each datagram. It has the permissions of the
//! file, so that only users of the locks can send. An engine removes its socket at its end. The
//! socket of a killed process stays and refuses connections. The next process that opens the file,
//! or sends to that socket, removes it. Each of these steps is one system call that does not block.
//!
//! A notification may always be lost: the path may be too long for a socket, a queue may be full,
//! or the other process may not see the same directory. The waiter then polls the file.

mod listener;
mod notifier;
mod permissions;
mod socket;
#[cfg(test)]
mod tests;

use std::path::Path;

pub(super) use listener::SqliteListener;
pub(super) use notifier::Notifier;

/// Opens a listener, if the system has such sockets, and returns its home. First removes the
/// sockets of dead processes.
pub(super) async fn listener(file: &Path) -> Option<(SqliteListener, u32)> {
    let path = file.to_owned();
    // Reading a directory may block for long.
    let opened = tokio::task::spawn_blocking(move || {
        socket::sweep(&path);
        listener::open(&path)
    });
    let why = match opened.await {
        Ok(Ok(listener)) => return Some(listener),
        Ok(Err(error)) => error,
        // The runtime shuts down.
        Err(error) => error.into(),
    };
    tracing::debug!(target: "dlock", error = %why, "notifications unavailable, falling back to polling");
    None
}
