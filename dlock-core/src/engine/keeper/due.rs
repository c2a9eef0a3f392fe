//! What is due at one time, in batches.

use std::{sync::Arc, time::Duration};

use super::BATCH;
use crate::{DynBackend, Instant, Renewal, engine::hold::Hold};

/// What one look finds to do.
#[derive(Default)]
pub(super) struct Due {
    pub(super) batches: Vec<Batch>,
    pub(super) late: Vec<Arc<Hold>>,
    /// Those that somebody of this process waits for, perhaps their holder.
    pub(super) own: Vec<Arc<Hold>>,
}

pub(super) struct Batch {
    pub(super) holds: Vec<Arc<Hold>>,
    pub(super) renewals: Vec<Renewal>,
    shard: u32,
    pub(super) sent: Instant,
    /// When to give an answer up: there is time for another try then.
    pub(super) limit: Duration,
}

impl Due {
    pub(super) fn add(&mut self, hold: Arc<Hold>, renewal: Renewal, backend: &DynBackend) {
        // Leases of one length go together, so that a short one's limit is not another's.
        let limit = hold.lease() / 3;
        let shard = backend.shard(hold.name());
        let fits = |batch: &&mut Batch| {
            batch.shard == shard && batch.limit == limit && batch.holds.len() < BATCH
        };
        let batch = match self.batches.iter_mut().rev().find(fits) {
            Some(batch) => batch,
            None => {
                let sent = Instant::from_nanos(0);
                self.batches.push(Batch { holds: vec![], renewals: vec![], shard, sent, limit });
                let last = self.batches.len() - 1;
                &mut self.batches[last]
            }
        };
        batch.holds.push(hold);
        batch.renewals.push(renewal);
    }
}
