//! The messages between clients and the server, and what the network does to them.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

use dlock_core::{
    ClaimId, LockName, LockState,
    machine::{Op, Outcome},
};
use tokio::sync::{Notify, oneshot};

use super::server::MachineServer;
use crate::faults::Micros;

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

/// The server, and the clients that wait for its messages.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) server: Option<Rc<RefCell<MachineServer>>>,
    pub(super) requests: u64,
    pub(super) answers: BTreeMap<u64, oneshot::Sender<Response>>,
    pub(super) turns: BTreeMap<ClaimId, Arc<Notify>>,
}

thread_local! {
    static MAIL: RefCell<Mail> = RefCell::default();
}

/// Uses the mail of the world of this thread.
pub(super) fn mail<T>(work: impl FnOnce(&mut Mail) -> T) -> T {
    MAIL.with_borrow_mut(work)
}

/// The number by which the machine knows a process; 0 is none.
pub(super) fn home_of(process: usize) -> u32 {
    u32::try_from(process + 1).unwrap_or(0)
}

pub(super) fn process_of(home: u32) -> usize {
    usize::try_from(home).map_or(0, |home| home.saturating_sub(1))
}
