//! The state of a claim, read from the connected member.
//!
//! Any member may answer a read, and may be behind the others. So a read names the revision that it
//! has to show, and is repeated until it does.

use dlock_core::{Backoff, Certainty, Clock, Error, Mode};
use futures_util::future::try_join_all;

use crate::{
    claim::{OwnClaim, own_key},
    client::{Failure, FailureKind, KeyValue, RangeRequest},
    connect::vote,
    queue::{Standing, blockers, standing, standing_among, whole},
    session::{Session, is_passing},
};

impl Session {
    /// Returns the state of a claim that was created at this revision, no older than `at_least`.
    pub(crate) async fn standing(
        &self,
        claim: &OwnClaim,
        created: i64,
        at_least: i64,
    ) -> Result<Standing, Error> {
        // The semaphore is never closed.
        let _permit = self.polls.acquire().await;
        let mode = claim.mode();
        let mut reads = vec![blockers(&claim.prefix, mode, Some(created))];
        if mode == Mode::Shared {
            reads.push(own_key(claim));
        }
        let read = self.read(reads, at_least.max(created)).await?.1;
        // No two keys of a lock have the same create revision.
        if !read.iter().any(|kv| kv.create_revision == created) {
            return Ok(Standing::Gone);
        }
        match standing(&claim.prefix, mode, created, read)? {
            Some(standing) => Ok(standing),
            None => Box::pin(self.standing_among_all(claim, created, at_least.max(created))).await,
        }
    }

    /// Like [`standing`](Self::standing), from all keys below the lock's prefix. Those of another
    /// root within this one may be among them.
    async fn standing_among_all(
        &self,
        claim: &OwnClaim,
        created: i64,
        at_least: i64,
    ) -> Result<Standing, Error> {
        let (_, read) = self.read(vec![whole(&claim.prefix)], at_least).await?;
        match read.iter().any(|kv| kv.create_revision == created) {
            true => standing_among(&claim.prefix, claim.mode(), created, read),
            false => Ok(Standing::Gone),
        }
    }

    /// Reads keys from the connected member until it has applied `at_least`, for as long as a caller
    /// waits. Returns a revision that is no later than any of the reads.
    ///
    /// Not in one transaction: etcd 3.5.0 to 3.5.6 crashes if a client goes away during one without
    /// writes, and 3.5 refuses it when the quota is used up.
    pub(crate) async fn read(
        &self,
        reads: Vec<RangeRequest>,
        at_least: i64,
    ) -> Result<(i64, Vec<KeyValue>), Failure> {
        let began = Clock::Boot.now();
        let (mut tries, mut pause) = (0, Backoff::new());
        loop {
            let asked = reads
                .iter()
                .map(|read| self.ask(RangeRequest { serializable: true, ..read.clone() }));
            match try_join_all(asked).await {
                Ok(found) if found.iter().all(|(header, _)| header.revision >= at_least) => {
                    let revision = found.iter().map(|(header, _)| header.revision).min();
                    let kvs = found.into_iter().flat_map(|(_, range)| range.kvs).collect();
                    return Ok((revision.unwrap_or(at_least), kvs));
                }
                // It is microseconds behind its own events, and longer behind other members.
                Ok(_) if tries < 3 => tries += 1,
                answer => {
                    let failure = answer.err().unwrap_or_else(behind_others);
                    let is_late = Clock::Boot.now().since(began) > self.response_timeout();
                    if is_late || self.is_over() || !is_passing(&failure) {
                        return Err(failure);
                    }
                    pause.wait().await;
                }
            }
        }
    }

    /// Sends a vote, and returns its revision.
    pub(crate) async fn vote(&self) -> Result<i64, Failure> {
        Ok(self.insist(vote(&self.keys)).await.0?.0.revision)
    }
}

fn behind_others() -> Failure {
    let why = "the member is behind the others, and does not catch up";
    Failure::new(FailureKind::Late, Certainty::NotApplied, why)
}
