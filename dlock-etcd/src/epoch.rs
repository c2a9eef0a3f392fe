//! The epoch of a session, which shuts out late creations.
//!
//! Each session has a marker, a key with its lease. The marker's mod revision is the epoch. Every
//! creation of a claim compares the marker's mod revision in its transaction. After an unknown
//! outcome of a creation, the client writes the marker again, until that is answered. From then on
//! the creation has been applied or never will be: a read shows which. Revisions never repeat, so a
//! late write of the marker opens no old epoch. It only makes the next creation fail its condition,
//! and that client writes the marker once more.
//!
//! If the quota of the database is used up, the servers refuse to write the marker. They also do if
//! the right to any key with its lease is missing. Then it is deleted, which they accept. A key that
//! is absent has the mod revision 0, which is no epoch.

use std::sync::atomic::Ordering;

use dlock_core::Backoff;

use crate::{
    client::{
        Compare, CompareResult, DeleteRangeRequest, Failure, FailureKind, PutRequest, RangeRequest,
    },
    session::Session,
};

impl Session {
    /// Returns the current epoch. Begins one if there is none.
    pub(crate) async fn epoch(&self) -> Result<i64, Failure> {
        match self.epoch.load(Ordering::SeqCst) {
            0 => {
                let _turn = self.raising.lock().await;
                match self.epoch.load(Ordering::SeqCst) {
                    0 => Box::pin(self.begin_epoch()).await,
                    epoch => Ok(epoch),
                }
            }
            epoch => Ok(epoch),
        }
    }

    /// Ends an epoch: no creation with it is applied any more. Returns a revision that shows all
    /// that were. It fails only if the session is over: whatever the members answer, another one may
    /// answer otherwise, and a right that is missing may come back.
    pub(crate) async fn end_epoch(&self, epoch: i64) -> Result<i64, Failure> {
        let mut pause = Backoff::new();
        loop {
            // Not during the pauses: a move to a new lease, which needs it, keeps heartbeats waiting.
            let turn = self.raising.lock().await;
            let now = self.epoch.load(Ordering::SeqCst);
            if now > epoch {
                return Ok(now);
            }
            let failure = match self.begin_epoch().await {
                Err(failure)
                    if matches!(failure.kind(), FailureKind::NoSpace | FailureKind::Denied) =>
                {
                    let key = self.marker.clone();
                    let delete = DeleteRangeRequest { key, ..Default::default() };
                    match self.insist(delete).await.0 {
                        Ok((header, _)) => {
                            self.epoch.store(0, Ordering::SeqCst);
                            return Ok(header.revision);
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
                begun => return begun,
            };
            drop(turn);
            if self.is_over() {
                return Err(failure);
            }
            tracing::debug!(target: "dlock", %failure, "writing the marker failed, will be retried");
            pause.wait().await;
        }
    }

    async fn begin_epoch(&self) -> Result<i64, Failure> {
        loop {
            let (key, lease) = (self.marker.clone(), self.lease());
            let put = PutRequest { key, lease, ..Default::default() };
            match self.insist(put).await.0 {
                Ok((header, _)) => {
                    self.epoch.store(header.revision, Ordering::SeqCst);
                    return Ok(header.revision);
                }
                Err(failure) if self.is_outdated(&failure, lease) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Begins the next epoch, with a marker that has the current lease.
    pub(crate) async fn renew_epoch(&self) -> Result<(), Failure> {
        let _turn = self.raising.lock().await;
        self.begin_epoch().await.map(|_| ())
    }

    /// Ends an epoch that the servers do not have, since the marker was written late or deleted.
    pub(crate) async fn check_epoch(&self, epoch: i64) -> Result<(), Failure> {
        let (_, read) = self.read(vec![self.read_marker()], self.seen()).await?;
        if read.first().is_none_or(|marker| marker.mod_revision != epoch) {
            self.end_epoch(epoch).await?;
        }
        Ok(())
    }

    /// Returns the condition that this is the epoch.
    pub(crate) fn in_epoch(&self, epoch: i64) -> Compare {
        Compare::modified(self.marker.clone(), CompareResult::Equal, epoch)
    }

    /// Returns a read of the marker.
    pub(crate) fn read_marker(&self) -> RangeRequest {
        RangeRequest { key: self.marker.clone(), keys_only: true, ..Default::default() }
    }
}
