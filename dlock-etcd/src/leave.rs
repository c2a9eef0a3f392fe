//! Release and cancellation of claims.
//!
//! The deletion of the key is the release, and it wakes the next waiter. It is repeated until the
//! outcome is certain. It requires that the key still has the create revision of the claim: the next
//! claim of this session has the same key, and a late deletion must not end that. If the process dies
//! before, the key ends with the lease.

use std::sync::Arc;

use dlock_core::{Certainty, Claim, Error, Format, Released};

use crate::{
    calls::{Pause, is_passing},
    client::{Bytes, Compare, CompareResult, DeleteRangeRequest, Failure, FailureKind, TxnRequest},
    key::Entry,
    own::{OwnClaim, Stage},
    record::Record,
    session::Session,
};

/// The outcome of a deletion.
pub(crate) struct Deleted {
    pub(crate) released: Released,
    /// Whether a request to delete the key, whatever its revision, may be applied later. The claim
    /// must not be created again.
    pub(crate) late: bool,
}

impl Session {
    /// Releases or cancels a claim, which may belong to another client.
    pub(crate) async fn leave(self: Arc<Self>, claim: Claim) -> Result<Released, Error> {
        let Some(own) = self.find(claim.id) else {
            return self.evict(&claim).await;
        };
        // From here on its end is no loss, unless it was one before.
        let lost = own.leave();
        let released = self.clear(&own).await?.released;
        Ok(if lost { Released::AlreadyLost } else { released })
    }

    /// Deletes the key of a claim of this session, and forgets the claim.
    pub(crate) async fn clear(&self, claim: &Arc<OwnClaim>) -> Result<Deleted, Error> {
        // Waits for a creation that is under way.
        let mut stage = claim.stage.lock().await;
        let answer = match &*stage {
            Stage::There(spot) => self.delete_own(claim, spot.created).await,
            Stage::New | Stage::Gone => {
                Ok(Deleted { released: Released::AlreadyLost, late: false })
            }
        };
        *stage = Stage::Gone;
        drop(stage);
        self.forget(claim);
        answer
    }

    /// Deletes the key of a claim of this session that was created at this revision.
    pub(crate) async fn delete_own(
        &self,
        claim: &OwnClaim,
        created: i64,
    ) -> Result<Deleted, Error> {
        let answer = self.delete(&claim.prefix, &claim.key, created).await;
        if answer.as_ref().map_or(true, |deleted| deleted.late) {
            claim.spoil();
        }
        answer
    }

    /// Deletes a key of a lock that was created at this revision, and repeats that until the outcome is
    /// certain, or the session is over.
    pub(crate) async fn delete(
        &self,
        lock: &str,
        key: &Bytes,
        created: i64,
    ) -> Result<Deleted, Error> {
        let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
        let txn = TxnRequest {
            compare: vec![Compare::created(key.clone(), CompareResult::Equal, created)],
            success: vec![delete.clone().into()],
            failure: Vec::new(),
        };
        let (mut unsure, mut late) = (false, false);
        let mut pause = Pause::new();
        loop {
            let send = || self.voted_together(lock, txn.clone());
            let (answer, unknown) = self.insist_by(send).await;
            unsure |= unknown;
            let failure: Failure = match answer {
                // An earlier sending may have deleted it.
                Ok((_, answer)) if answer.succeeded || unsure => {
                    return Ok(Deleted { released: Released::Released, late });
                }
                Ok(_) => return Ok(Deleted { released: Released::AlreadyLost, late }),
                // etcd 3.5 refuses transactions without writes, too, but no plain deletion. There
                // are no new claims now.
                Err(failure) if failure.kind() == FailureKind::NoSpace => {
                    match self.voted(delete.clone()).await {
                        // The transaction that raises the alarm is refused, but applied.
                        Ok(_) => return Ok(Deleted { released: Released::Released, late }),
                        Err(failure) => {
                            let unknown = failure.certainty() == Certainty::Unknown;
                            (unsure, late) = (unsure | unknown, late | unknown);
                            failure
                        }
                    }
                }
                Err(failure) => failure,
            };
            if failure.kind() == FailureKind::Denied || self.is_over() {
                return Err(failure.into());
            }
            if is_passing(&failure) {
                pause.wait().await;
                continue;
            }
            // Not abandoned: the key would block the lock for as long as the session lives.
            tracing::warn!(target: "dlock", %failure, "deleting a key failed, will be retried");
            tokio::time::sleep(self.patience()).await;
        }
    }

    /// Deletes the key of a claim that belongs to another or an earlier session, or to Go's mutex.
    async fn evict(&self, claim: &Claim) -> Result<Released, Error> {
        let prefix = self.keys.prefix(&claim.name);
        let mut released = Released::AlreadyLost;
        for kv in self.all_below(&prefix).await? {
            let rest = kv.key.strip_prefix(prefix.as_bytes());
            let (entry, record) = (rest.map(Entry::of), Record::parse(&kv.value));
            let id = match (entry, &record) {
                (Some(Entry::Ours(..)), Some(record)) => record.claim,
                (Some(Entry::Ours(_, place)), None) => place.as_claim(),
                (Some(Entry::Go(id)), _) => id,
                _ => continue,
            };
            if id != claim.id {
                continue;
            }
            if let Some(format) = record.and_then(|record| record.newer()) {
                return Err(Format::unknown(format));
            }
            let deleted = self.delete(&prefix, &kv.key, kv.create_revision).await?;
            if deleted.released == Released::Released {
                released = Released::Released;
            }
        }
        Ok(released)
    }
}
