//! What was measured of one store.

use std::time::Duration;

use dlock::{FencingToken, guarantees::Guarantees};

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) speed: Speed,
    pub(crate) harm: Harm,
}

/// While all is well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) guarantees: Guarantees,
    /// To take and release a lock that nobody else wants.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// How often a contended lock changes hands, each second.
    pub(crate) hand_offs: f64,
}

/// When something happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Harm {
    /// From the death of a holder to the next one.
    pub(crate) orphan: Duration,
    /// `None` where there is no server of ours.
    pub(crate) restart: Option<Restart>,
    pub(crate) cut: Option<Cut>,
}

/// The server was killed and started again while the lock was held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    /// From the kill to the first answer to somebody who asks all the time.
    pub(crate) away: Duration,
    /// From the kill until the server is ready.
    pub(crate) up: Duration,
    pub(crate) first: FencingToken,
    /// Who was let in, though the first had not released.
    pub(crate) second: Option<FencingToken>,
    /// Whether the first still believed in its lock then.
    pub(crate) believed: bool,
}

/// Nothing came through between the holder and the server any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Until the holder knew that it had lost the lock.
    pub(crate) told: Duration,
    /// Until somebody else had it.
    pub(crate) passed: Duration,
}
