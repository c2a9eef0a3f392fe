//! Renewals without an answer.

use std::time::Duration;

use dlock_core::{Clock, Instant};

use super::{Connection, Kind, NodeShared};

/// Closes the connection if a renewal is not answered, because a lease is running: the next
/// connection may lead to another address of the server. The core drops a renewal after a third of
/// the lease, which may be sooner than the response timeout.
pub(super) struct UnansweredRenewal<'a> {
    shared: &'a NodeShared,
    epoch: u64,
    sent: Option<Instant>,
}

impl<'a> UnansweredRenewal<'a> {
    /// A renewal that ends sooner says nothing about the connection.
    const SOON: Duration = Duration::from_millis(100);

    pub(super) fn before(shared: &'a NodeShared, connection: &Connection, kind: Kind) -> Self {
        let sent = (kind == Kind::Renewal).then(|| Clock::Boot.now());
        Self { shared, epoch: connection.epoch, sent }
    }

    pub(super) fn answered(mut self) {
        self.sent = None;
    }
}

impl Drop for UnansweredRenewal<'_> {
    fn drop(&mut self) {
        if self.sent.is_some_and(|sent| Clock::Boot.now().since(sent) >= Self::SOON) {
            self.shared.disconnect(self.epoch, "a renewal was not answered in time");
        }
    }
}
