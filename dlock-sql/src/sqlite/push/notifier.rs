//! The socket that sends notifications.

use std::{
    io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use super::socket::{path, remove_stale};
use crate::engine::Notification;

/// Sends notifications to the other engines over a file.
#[derive(Debug)]
pub(in crate::sqlite) struct Notifier {
    file: PathBuf,
    /// It never blocks: a slow receiver must not delay a release.
    datagrams: UnixDatagram,
}

impl Notifier {
    /// Creates a sender for this file. Returns `None` if the system has no such sockets.
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

    /// Sends each notification to its engine. If a waiter gets none, it finds its grant in the
    /// file.
    pub(in crate::sqlite) fn notify(&self, notifications: &[Notification]) {
        for notification in notifications {
            // The home chooses the socket, so no connection is kept for each receiver.
            let path = path(&self.file, notification.granted.home);
            if let Err(error) = self.datagrams.send_to(notification.to_string().as_bytes(), &path) {
                tracing::debug!(target: "dlock", %error, "notifying a waiter failed");
                // Also removes the socket if its process is dead, so that nobody sends to it again.
                remove_stale(&path, &error);
            }
        }
    }
}
