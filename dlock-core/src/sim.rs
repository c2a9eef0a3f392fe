//! What a simulation puts in the place of the machine: the clock and the network.
//!
//! It exists in the builds of `scripts/simulate` only. Each value belongs to the thread, which is that
//! of the one simulated process that runs. The simulation sets it before it lets a process run.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
};

use tokio::io::{AsyncRead, AsyncWrite};

/// A rule that a simulation leaves out on purpose, to show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A holder believes in its lease for less time than the store does.
    Margin,
    /// A renewed lease counts from the request, not from the answer.
    RenewalFromRequest,
}

thread_local! {
    static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    static NETWORK: RefCell<Option<Rc<dyn Network>>> = const { RefCell::new(None) };
}

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// The network of the process that runs.
pub trait Network {
    /// Opens a connection to this address, `HOST:PORT`.
    fn connect(&self, address: &str) -> Opening;
}

/// Sets the clock [`Boot`](crate::Clock::Boot) of the process that runs, in nanoseconds.
pub fn set_clock(nanos: u64) {
    CLOCK.set(nanos);
}

/// Leaves out a rule from now on.
pub fn leave_out(rule: Rule) {
    LEFT_OUT.set(Some(rule));
}

pub(crate) fn is_left_out(rule: Rule) -> bool {
    LEFT_OUT.get() == Some(rule)
}

pub(crate) fn clock() -> u64 {
    CLOCK.get()
}

/// Sets the network of the process that runs.
pub fn set_network(network: Rc<dyn Network>) {
    NETWORK.set(Some(network));
}

/// Opens a connection in the simulated network.
///
/// # Errors
/// If the thread has no network, or its network refuses the connection.
pub async fn connect(address: &str) -> io::Result<Box<dyn Stream>> {
    let opening = NETWORK.with_borrow(|network| network.as_ref().map(|one| one.connect(address)));
    match opening {
        Some(opening) => opening.await,
        None => Err(io::ErrorKind::NetworkDown.into()),
    }
}
