//! The holders and waiters of a lock, for `inspect`.
//!
//! The nodes are read one batch after the other, so nodes may appear and disappear in between. The
//! result may be out of date, as any inspection may be, but it is never older than the heartbeat
//! before it.

use std::time::Duration;

use dlock_core::{ClaimState, Clock, Error, LockName, LockState, Mode, unknown_format};
use zookeeper_client::{Error as ZkError, MultiReadResult};

use crate::{
    error::explain,
    node::token,
    queue::Queue,
    record::{Mark, Record},
    session::Session,
};

/// The number of nodes in one request.
const BATCH: usize = 500;

impl Session {
    /// Returns the holders and waiters, no older than this call.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.catch_up().await.map_err(explain)?;
        let dir = self.dir(name);
        let Some(queue) = self.queue(&dir, None).await.map_err(explain)? else {
            return Ok(LockState::default());
        };
        if let Some(format) = queue.newer_before(None) {
            return Err(unknown_format(format));
        }
        let mut seen = Vec::with_capacity(queue.nodes().len());
        for batch in queue.nodes().chunks(BATCH) {
            let read = || async {
                let mut all = self.client.new_multi_reader();
                for node in batch {
                    all.add_get_data(&format!("{dir}/{}", node.child))?;
                }
                all.commit().await
            };
            for (node, result) in batch.iter().zip(self.read(read).await.map_err(explain)?) {
                if let MultiReadResult::Error { err } = &result
                    && !matches!(err, ZkError::NoNode)
                {
                    return Err(explain(err.clone()));
                }
                // A node that was deleted meanwhile is left out.
                if let MultiReadResult::Data { data, stat } = result {
                    let record = Record::parse(&data);
                    if let Some(format) = record.as_ref().and_then(|record| record.newer) {
                        return Err(unknown_format(format));
                    }
                    let reads =
                        record.as_ref().is_some_and(|record| record.mark == Some(Mark::Shared));
                    let mode = if reads { Mode::Shared } else { node.mode };
                    let czxid = node.since.unwrap_or(stat.czxid);
                    seen.push((node.claim, mode, czxid, record, stat.ephemeral_owner));
                }
            }
        }
        let now = Clock::Boot.now();
        let held = Queue::holding(seen.iter().map(|(_, mode, ..)| *mode));
        let state = |at: usize| {
            let (claim, mode, czxid, record, owner) = &seen[at];
            let remaining = match self.find(*claim) {
                // Without a session, nothing but a person ends it. If a container or a node with a
                // TTL ends by itself, its owner does not show that.
                _ if *owner == 0 => Duration::MAX,
                // Only the client of a claim knows the end of its lease.
                Some(claim) => claim.remaining(now),
                None => record.as_ref().map_or(self.timeout, |record| record.lease),
            };
            ClaimState::new(*claim, *mode, if at < held { token(*czxid) } else { None }, remaining)
                .with_note(record.as_ref().and_then(|record| record.note.clone()))
        };
        let holders: Vec<_> = (0..held).map(state).collect();
        let waiters = (held..seen.len()).map(state).collect();
        let last = holders.iter().filter_map(|holder| holder.token).max();
        Ok(LockState::new(holders, waiters, last))
    }
}
