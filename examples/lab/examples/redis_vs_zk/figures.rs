//! The measurements of one store.

use std::time::Duration;

use dlock::{FencingToken, guarantees::Guarantees};

/// All measurements.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) speed: Speed,
    pub(crate) faults: FaultFigures,
}

/// The measurements without faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) guarantees: Guarantees,
    /// The time to acquire and release an uncontended lock.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// The number of hand-offs of a contended lock per second.
    pub(crate) hand_offs: f64,
}

/// The measurements with faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultFigures {
    /// The time from the death of a holder to the next grant.
    pub(crate) orphan: Duration,
    /// `None` if the server is not a private one.
    pub(crate) restart: Option<Restart>,
    pub(crate) cut: Option<Cut>,
}

/// The measurements of a kill and restart of the server while the lock was held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    /// The time from the kill to the first answer to a client that retries continuously.
    pub(crate) away: Duration,
    /// The time from the kill until the server is ready.
    pub(crate) up: Duration,
    pub(crate) first: FencingToken,
    /// The token of a second holder, if one was granted although the first had not released.
    pub(crate) second: Option<FencingToken>,
    /// Whether the first holder still considered its lock held then.
    pub(crate) believed: bool,
}

/// The measurements of a network cut between the holder and the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The time until the holder detected the loss of its lock.
    pub(crate) told: Duration,
    /// The time until another client held it.
    pub(crate) passed: Duration,
}
