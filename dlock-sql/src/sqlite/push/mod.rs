//! How one engine over a file tells another of a grant: by a datagram to its socket.
//!
//! ```text
//! locks.db                    the file
//! locks.db-dlock-0a1b2c3d     the socket of the engine whose home is 0x0a1b2c3d
//! ```
//! A socket takes the notes of grants, one a datagram, and has the rights of the file, so that who
//! can use the locks can tell. The file system lets nobody else write to it. It goes with its engine;
//! that of a process that was killed stays, refuses whoever connects, and is removed by the next one
//! that opens the file or has something to tell it. A system call does each of these, and none of
//! them waits.
//!
//! Nothing hangs on a note: who gets none, because its path is too long for a socket, or a queue is
//! full, or the other does not see the same directory, looks at the file.

mod ears;
mod rights;
mod socket;
#[cfg(test)]
mod tests;
mod voice;

use std::path::Path;

pub(super) use ears::SqliteEars;
pub(super) use voice::Voice;

/// Open ears and their home, where the system has such sockets; tidies up after the dead.
pub(super) async fn ears(file: &Path) -> Option<(SqliteEars, u32)> {
    let path = file.to_owned();
    // A directory may be long to read.
    let opened = tokio::task::spawn_blocking(move || {
        socket::sweep(&path);
        ears::open(&path)
    });
    let why = match opened.await {
        Ok(Ok(ears)) => return Some(ears),
        Ok(Err(error)) => error,
        // The runtime shuts down.
        Err(error) => error.into(),
    };
    tracing::debug!(target: "dlock", error = %why, "notifications unavailable, falling back to polling");
    None
}
