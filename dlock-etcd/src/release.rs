//! Release and cancellation of claims.
//!
//! The deletion of the key is the release, and it wakes the next waiter. It is repeated until the
//! outcome is certain. If the process dies before, the key ends with the lease.
//!
//! If the servers refuse a deletion, for example because a role is being changed, the caller gets
//! the error at once. But the key would block the lock for as long as the session lives, so the
//! session [repeats the deletion](SessionBase::defer_deletion) in the background. If that is
//! refused for longer than a heartbeat may take, the session continues with a new lease and moves
//! all other keys to it. The key then ends with the earlier lease.
//!
//! The next claim of this session on the name has the same key, which a late deletion must not end.
//! So if a deletion was not answered, no other claim gets this key: see
//! [`KeySlots`](crate::key::KeySlots).

use std::{sync::Arc, time::Duration};

use dlock_core::{Certainty, Claim, Error, Released, session::SessionBase, unknown_format};

use crate::{
    claim::{OwnClaim, Stage},
    client::{
        Bytes, Compare, CompareResult, DeleteRangeRequest, Failure, FailureKind, Header, TxnRequest,
    },
    key::Entry,
    record::Record,
    session::Session,
};

impl Session {
    /// Releases or cancels a claim, which may belong to another client.
    pub(crate) async fn release(self: Arc<Self>, claim: Claim) -> Result<Released, Error> {
        let Some(own) = self.find(claim.id) else {
            return Box::pin(self.evict(&claim)).await;
        };
        // From here on, the end of the key is not a loss, unless it has ended before.
        let lost = own.leave();
        let released = self.clear(&own).await?;
        Ok(if lost { Released::AlreadyLost } else { released })
    }

    /// Deletes the key of a claim of this session, and forgets the claim. If the servers refuse that,
    /// the deletion is repeated in the background for as long as the session lives.
    pub(crate) async fn clear(self: &Arc<Self>, claim: &Arc<OwnClaim>) -> Result<Released, Error> {
        let answer = self.clear_once(claim).await;
        if let Err(error) = &answer {
            self.clear_later(claim, error);
        }
        answer
    }

    /// If this fails, the claim is kept, unless the session is over.
    async fn clear_once(&self, claim: &Arc<OwnClaim>) -> Result<Released, Error> {
        // Waits for a creation that is under way.
        let mut stage = claim.stage.lock().await;
        let answer = match &*stage {
            Stage::Gone => Ok(Released::AlreadyLost),
            Stage::New if claim.refused_in().is_none() => Ok(Released::AlreadyLost),
            Stage::New | Stage::Doubtful | Stage::There(_) => self.delete_own(claim).await,
        };
        if answer.is_ok() || self.is_over() {
            *stage = Stage::Gone;
            drop(stage);
            self.forget(claim);
        }
        answer
    }

    /// Repeats the deletion of a key in the background, after the servers have refused it with this
    /// `error`. The claim has ended.
    pub(crate) fn clear_later(self: &Arc<Self>, claim: &Arc<OwnClaim>, error: &Error) {
        #[cfg(dlock_sim)]
        if dlock_core::sim::has_mistake("refused-release-forgotten") {
            return self.forget(claim);
        }
        claim.set_refused_in(self.lease());
        SessionBase::defer_deletion(self, claim, error, clear_again);
    }

    /// Deletes the key of a claim of this session.
    pub(crate) async fn delete_own(&self, claim: &OwnClaim) -> Result<Released, Error> {
        let was_retired = claim.retire(true);
        let delete = DeleteRangeRequest { key: claim.key.clone(), ..Default::default() };
        let send = |is_full| {
            let delete = delete.clone();
            async move {
                match is_full {
                    false => self.voted_in_batch(claim.prefix.as_bytes(), delete).await,
                    // If the quota is used up, etcd refuses transactions with creations, and 3.5
                    // all transactions.
                    true => Box::pin(self.voted(delete)).await,
                }
            }
        };
        let (answer, unsure) = self.delete(send).await?;
        claim.retire(unsure || was_retired);
        // An unanswered sending may have deleted it.
        Ok(if answer.deleted > 0 || unsure { Released::Released } else { Released::AlreadyLost })
    }

    /// Deletes a key if it was created at this revision. Its slot may be in use again.
    pub(crate) async fn delete_created(
        &self,
        key: &Bytes,
        created: i64,
    ) -> Result<Released, Error> {
        let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
        let txn = TxnRequest {
            compare: vec![Compare::created(key.clone(), CompareResult::Equal, created)],
            success: vec![delete.into()],
            failure: Vec::new(),
        };
        let (answer, unsure) = self.delete(|_| self.voted(txn.clone())).await?;
        Ok(if answer.succeeded || unsure { Released::Released } else { Released::AlreadyLost })
    }

    /// Sends a deletion until the outcome is certain, or the session is over. Returns the answer,
    /// and whether an earlier sending was not answered.
    async fn delete<T, F>(&self, mut send: impl FnMut(bool) -> F) -> Result<(T, bool), Error>
    where
        F: Future<Output = Result<(Header, T), Failure>>,
    {
        let (mut unsure, mut is_full) = (false, false);
        loop {
            let (answer, unknown) = self.insist_by(|| send(is_full)).await;
            unsure |= unknown;
            let failure = match answer {
                Ok((_, answer)) => return Ok((answer, unsure)),
                Err(failure) => failure,
            };
            if failure.kind() == FailureKind::Denied || self.is_over() {
                return Err(failure.into());
            }
            unsure |= failure.certainty() == Certainty::Unknown;
            if failure.kind() == FailureKind::NoSpace && !is_full {
                is_full = true;
                continue;
            }
            tracing::warn!(target: "dlock", %failure, "deleting a key failed, will be retried");
            tokio::time::sleep(self.response_timeout()).await;
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
                (Some(Entry::Ours(_, slot)), None) => slot.as_claim(),
                (Some(Entry::Go(id)), _) => id,
                _ => continue,
            };
            if id != claim.id {
                continue;
            }
            if let Some(format) = record.and_then(|record| record.newer) {
                return Err(unknown_format(format));
            }
            if self.delete_created(&kv.key, kv.create_revision).await? == Released::Released {
                released = Released::Released;
            }
        }
        Ok(released)
    }
}

/// Tries again to delete the key of a claim that has ended. Returns whether it is gone. If that is
/// refused for longer than a heartbeat may take, the session leaves the key behind, once.
async fn clear_again(session: Arc<Session>, claim: Arc<OwnClaim>, deferred_for: Duration) -> bool {
    if session.clear_once(&claim).await.is_ok() {
        return true;
    }
    // The key has this lease of the session or an earlier one.
    if deferred_for > session.heartbeat_interval()
        && let Some(lease) = claim.refused_in()
        && let Err(failure) = Box::pin(session.leave_behind(lease)).await
    {
        tracing::debug!(target: "dlock", %failure, "taking a new lease failed");
    }
    false
}
