//! Where notes arrive.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use dlock_core::{Error, ErrorKind, LockName};
use tokio::net::UnixDatagram;

use super::socket::Socket;
use crate::engine::Ears;

/// No note is longer: five numbers, and the name.
const LONGEST: usize = 256 + LockName::MAX_BYTES;
/// How many homes are tried.
const TRIES: usize = 3;

/// Hears what is sent to one home.
#[derive(Debug)]
pub(in crate::sqlite) struct SqliteEars {
    file: PathBuf,
    home: u32,
    open: Option<Open>,
    buffer: Box<[u8]>,
}

/// The runtime's view of the socket goes before the socket.
#[derive(Debug)]
struct Open {
    datagrams: UnixDatagram,
    socket: Socket,
}

/// Open ears of a new home.
pub(super) fn open(file: &Path) -> io::Result<(SqliteEars, u32)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let home = rand::random_range(1..=u32::MAX);
        match Open::new(file, home) {
            Ok(open) => {
                let buffer = vec![0; LONGEST].into();
                let ears = SqliteEars { file: file.to_owned(), home, open: Some(open), buffer };
                return Ok((ears, home));
            }
            Err(error) if tries == TRIES || !may_pass(&error) => return Err(error),
            Err(_) => {}
        }
    }
}

/// Whether another home may do: that one is taken, or somebody who tidied up came at the moment at
/// which the socket was there and did not answer yet.
fn may_pass(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::NotFound)
}

impl Open {
    fn new(file: &Path, home: u32) -> io::Result<Self> {
        let socket = Socket::bind(file, home)?;
        let datagrams = socket.datagrams.try_clone()?;
        // tokio has no way to ask whether its runtime does this, and panics where it doesn't.
        let datagrams = catch_unwind(AssertUnwindSafe(|| UnixDatagram::from_std(datagrams)))
            .map_err(|_| io::Error::other("the tokio runtime has no I/O: call enable_io()"))??;
        Ok(Self { datagrams, socket })
    }
}

impl Ears for SqliteEars {
    async fn open(&mut self) -> Result<(), Error> {
        // Whoever could not reach it will not reach another one. What is in its queue stays there.
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
                    // Anything else is from a stranger.
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
    Error::new(ErrorKind::Unavailable, "no note can arrive: waiters look for themselves")
        .with_source(error)
}
