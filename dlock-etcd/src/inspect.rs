//! The holders and waiters of a lock, for `inspect`.
//!
//! They are read in pages, since a message of gRPC has a limited size. Each page is read at the
//! revision of the first one, so that all show one state.

use std::time::Duration;

use dlock_core::{ClaimState, Clock, Error, LockName, LockState};

use crate::{
    client::{Header, KeyValue, LeaseTimeToLiveRequest, RangeRequest, RangeResponse},
    key::{past, token},
    queue::{Node, holding, is_nested, whole},
    session::Session,
};

/// The number of keys in one answer: with a note, a claim has at most 2 KB.
const PAGE: i64 = 1000;

impl Session {
    /// Returns the holders and waiters, no older than this call.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let prefix = self.keys.prefix(name);
        let kvs = self.all_below(&prefix).await?.into_iter();
        let nodes = kvs.filter(|kv| !is_nested(&prefix, &kv.key)).map(|kv| Node::read(&prefix, kv));
        let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        nodes.sort_by_key(|node| node.created);
        let modes = nodes.iter().map(Node::mode).collect::<Result<Vec<_>, _>>()?;
        let held = holding(modes.iter().copied());
        let mut states = Vec::with_capacity(nodes.len());
        for (at, (node, mode)) in nodes.iter().zip(modes).enumerate() {
            let token = if at < held { token(node.created) } else { None };
            let remaining = self.remaining(node).await?;
            let record = node.record.as_ref();
            states.push(
                ClaimState::new(node.claim, mode, token, remaining)
                    .with_note(record.and_then(|record| record.note.clone())),
            );
        }
        let waiters = states.split_off(held);
        let last = states.iter().filter_map(|holder| holder.token).max();
        Ok(LockState::new(states, waiters, last))
    }

    /// Reads all keys of a lock, as they are at one revision.
    pub(crate) async fn all_below(&self, prefix: &str) -> Result<Vec<KeyValue>, Error> {
        let mut read = whole(prefix);
        let mut kvs = Vec::new();
        loop {
            let (header, page) = self.get(read.clone()).await?;
            let last = page.kvs.last().map(|kv| kv.key.clone());
            kvs.extend(page.kvs);
            let (true, Some(last)) = (page.more, last) else { return Ok(kvs) };
            read.key = past(&last);
            if read.revision == 0 {
                read.revision = header.revision;
            }
        }
    }

    /// Returns the rest of a claim's lease. Only its client knows the end: for other clients it is
    /// the whole lease, and for Go's mutex the rest of its session. `Duration::MAX` for a key
    /// without a lease.
    async fn remaining(&self, node: &Node) -> Result<Duration, Error> {
        if let Some(claim) = self.find(node.claim) {
            return Ok(claim.remaining(Clock::Boot.now()));
        }
        // Another program has put it without a lease: nothing but a person ends it.
        if node.lease == 0 {
            return Ok(Duration::MAX);
        }
        if !node.is_go {
            return Ok(node.record.as_ref().map_or(self.ttl, |record| record.lease));
        }
        let request = LeaseTimeToLiveRequest { id: node.lease };
        let (_, left) = self.insist_on(request).await?;
        Ok(Duration::from_secs(u64::try_from(left.ttl).unwrap_or(0)))
    }

    /// Reads one page, from a majority.
    pub(crate) async fn get(&self, read: RangeRequest) -> Result<(Header, RangeResponse), Error> {
        self.insist_on(RangeRequest { limit: PAGE, ..read }).await
    }
}
