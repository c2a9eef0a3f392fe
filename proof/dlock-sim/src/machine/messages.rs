//! The messages between clients and the server, and what the network does to them.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use dlock_core::{
    ClaimId, LockName, LockState,
    machine::{Op, Outcome},
};
use tokio::sync::{Notify, oneshot};

use crate::{faults::Micros, random::Rng};

/// A request of a client.
#[derive(Debug)]
pub(super) enum Request {
    /// Reads the clock.
    Sample,
    /// Applies operations at one time.
    Apply {
        ops: Vec<(LockName, Op)>,
        valid: Option<Validity>,
    },
    Inspect(LockName),
}

/// Until when the server executes an acquire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    pub(super) deadline: Micros,
    pub(super) epoch: u64,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(super) struct Response {
    /// What the server's clock showed.
    pub(super) clock: Micros,
    /// How often the server has lost its data, or its clock was set back.
    pub(super) epoch: u64,
    /// One for each operation.
    pub(super) applied: Vec<Applied>,
    pub(super) state: LockState,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applied {
    pub(super) outcome: Outcome,
    pub(super) last_token: u64,
    pub(super) next_expiry: Option<Micros>,
}

/// What the network does to single messages, as chances in a million.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageFaults {
    pub(super) lost: u64,
    pub(super) twice: u64,
    /// The chance of a very late message, and how late it is.
    pub(super) late: (u64, Range<Micros>),
}

impl MessageFaults {
    /// Draws the faults of this seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "messages");
        let latest = rng.pick(&[500_000, 1_000_000, 3_000_000]);
        Self {
            lost: rng.pick(&[0, 2_000, 10_000, 50_000]),
            twice: rng.pick(&[0, 10_000, 100_000]),
            late: (rng.pick(&[0, 2_000, 10_000, 50_000]), 100_000..latest),
        }
    }
}

/// The clients that wait for messages of the server, and the faults of the messages.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) faults: MessageFaults,
    pub(super) requests: u64,
    pub(super) answers: BTreeMap<u64, oneshot::Sender<Response>>,
    pub(super) turns: BTreeMap<ClaimId, Arc<Notify>>,
}

/// The number by which the machine knows a process; 0 is none.
pub(super) fn home_of(process: usize) -> u32 {
    u32::try_from(process + 1).unwrap_or(0)
}

pub(super) fn process_of(home: u32) -> usize {
    usize::try_from(home).map_or(0, |home| home.saturating_sub(1))
}
