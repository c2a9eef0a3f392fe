//! The machine of a simulated process: its clock and its network.
//!
//! It exists in the builds of `scripts/simulate` only. The simulation has one thread, and sets the
//! process that runs.

use std::{cell::Cell, io, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

thread_local! {
    static RUNNING: Cell<Option<Process>> = const { Cell::new(None) };
}

/// A process, as the code in it sees it.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its number.
    pub number: usize,
    /// The clock [`Boot`](crate::Clock::Boot), in nanoseconds.
    pub clock: u64,
    /// A mistake of the code on purpose, to show that the simulation finds it.
    pub mistake: Option<&'static str>,
    /// Opens a connection of the process with this number to an address, `HOST:PORT`.
    pub connect: fn(usize, &str) -> Opening,
}

/// A connection that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Makes this the process that runs.
pub fn run(process: Process) {
    RUNNING.set(Some(process));
}

pub(crate) fn clock() -> u64 {
    RUNNING.get().map_or(0, |process| process.clock)
}

/// Returns whether the code of the process makes this mistake on purpose.
pub fn has_mistake(name: &str) -> bool {
    RUNNING.get().and_then(|process| process.mistake) == Some(name)
}

/// Opens a connection in the network of the process.
///
/// # Errors
/// If no process runs, or its network refuses the connection.
pub async fn connect(address: &str) -> io::Result<Box<dyn Stream>> {
    let process = RUNNING.get().ok_or(io::ErrorKind::NetworkDown)?;
    (process.connect)(process.number, address).await
}
