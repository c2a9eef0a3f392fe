//! How notes leave.

use std::{
    io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use super::socket::{bury, path};
use crate::engine::Note;

/// Tells the other engines over a file.
#[derive(Debug)]
pub(in crate::sqlite) struct Voice {
    file: PathBuf,
    /// It never waits.
    datagrams: UnixDatagram,
}

impl Voice {
    /// The voice of an engine over this file; `None` where there are no sockets to be had.
    pub(in crate::sqlite) fn new(file: &Path) -> Option<Self> {
        let datagrams = || {
            let datagrams = UnixDatagram::unbound()?;
            datagrams.set_nonblocking(true)?;
            Ok::<_, io::Error>(datagrams)
        };
        let datagrams = datagrams()
            .inspect_err(|error| tracing::debug!(target: "dlock", %error, "no notification socket"))
            .ok()?;
        Some(Self { file: file.to_owned(), datagrams })
    }

    /// Sends each where it belongs. Whoever does not get his finds it in the file.
    pub(in crate::sqlite) fn tell(&self, notes: &[Note]) {
        for note in notes {
            let path = path(&self.file, note.granted.home);
            if let Err(error) = self.datagrams.send_to(note.to_string().as_bytes(), &path) {
                tracing::debug!(target: "dlock", %error, "notifying a waiter failed");
                bury(&path, &error);
            }
        }
    }
}
