//! The socket that receives notifications.
//!
//! A lost or refused notification costs a poll. So every error here only makes the waiters poll
//! more often.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use dlock_core::{Error, ErrorKind, LockName};
use tokio::net::UnixDatagram;

use super::socket::Socket;
use crate::engine::Listener;

/// The longest notification: five numbers, and the name.
const LONGEST: usize = 256 + LockName::MAX_BYTES;
/// The number of homes that are tried.
const TRIES: usize = 3;

/// Receives the notifications to one home.
#[derive(Debug)]
pub(in crate::sqlite) struct SqliteListener {
    file: PathBuf,
    home: u32,
    open: Option<Open>,
    buffer: Box<[u8]>,
}

/// The fields are dropped in this order: the runtime's handle of the socket before the socket.
#[derive(Debug)]
struct Open {
    datagrams: UnixDatagram,
    socket: Socket,
}

/// Opens a listener with a new home.
pub(super) fn open(file: &Path) -> io::Result<(SqliteListener, u32)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let home = rand::random_range(1..=u32::MAX);
        match Open::new(file, home) {
            Ok(open) => {
                let buffer = vec![0; LONGEST].into();
                let listener =
                    SqliteListener { file: file.to_owned(), home, open: Some(open), buffer };
                return Ok((listener, home));
            }
            Err(error) if tries == TRIES || !may_pass(&error) => return Err(error),
            Err(_) => {}
        }
    }
}

/// Returns whether another home may work. This one is in use, or another process has removed the
/// socket as a dead one, between its creation and its first answer.
fn may_pass(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::NotFound)
}

impl Open {
    fn new(file: &Path, home: u32) -> io::Result<Self> {
        let socket = Socket::bind(file, home)?;
        let datagrams = socket.datagrams.try_clone()?;
        // tokio panics if its runtime has no I/O, and offers no way to check before.
        let datagrams = catch_unwind(AssertUnwindSafe(|| UnixDatagram::from_std(datagrams)))
            .map_err(|_| io::Error::other("the tokio runtime has no I/O: call enable_io()"))??;
        Ok(Self { datagrams, socket })
    }
}

impl Listener for SqliteListener {
    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    async fn open(&mut self) -> Result<(), Error> {
        // If the socket is still in its place, a new one would not be reached any better, and would
        // lose the notifications in the queue of this one.
        if self.open.as_ref().is_some_and(|open| open.socket.is_there()) {
            return Ok(());
        }
        self.open = None;
        self.open = Some(Open::new(&self.file, self.home).map_err(lost)?);
        Ok(())
    }

    async fn next(&mut self) -> Result<String, Error> {
        loop {
            let Some(open) = &self.open else {
                return Err(lost(io::ErrorKind::NotConnected.into()));
            };
            match open.datagrams.recv(&mut self.buffer).await {
                Ok(length) => {
                    // Other data is not from dlock.
                    if let Ok(text) = std::str::from_utf8(&self.buffer[..length]) {
                        return Ok(text.to_owned());
                    }
                }
                Err(error) => {
                    self.open = None;
                    return Err(lost(error));
                }
            }
        }
    }
}

fn lost(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no notification can arrive: waiters poll")
        .with_source(error)
}
