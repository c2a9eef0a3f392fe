//! The requests to a task that supports the mutex only.
//!
//! Each request has a oneshot for its answer. A caller may stop waiting at any time: a request to
//! take a lock is then skipped if it has not begun, and a release is always done.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, Error, ErrorKind, Finding, LockName, LockState, Mode,
    Released,
};
use tokio::sync::oneshot;

use crate::engine::{Lanes, Listed, Message, Range, Reply, answer_of, gone};

/// A request, and the channel for its answer.
#[derive(Debug)]
pub(crate) enum MutexRequest {
    Acquire(Want, Reply<Acquired>),
    /// Renews the leases of these claims. The answer says for each whether it is held.
    Renew(Vec<Want>, Reply<Vec<bool>>),
    Release(LockName, ClaimId, Reply<Released>),
    Inspect(LockName, Reply<LockState>),
    List(Range, Reply<Vec<Listed>>),
    Examine(Reply<Vec<Finding>>),
}

impl Message for MutexRequest {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew(..) | Self::Release(..))
    }
}

/// A claim on a lock.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) name: LockName,
    pub(crate) claim: ClaimId,
    pub(crate) lease: Duration,
    /// Whether this is the last renewal of the claim, which may shorten its lease.
    pub(crate) is_last: bool,
}

/// The callers' end.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) lanes: Lanes<MutexRequest>,
    /// The name of the backend, with the option that chooses it, for messages.
    pub(super) form: &'static str,
}

impl Requests {
    pub(super) async fn send<T>(
        &self,
        request: impl FnOnce(Reply<T>) -> MutexRequest,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let request = request(reply);
        let lane = self.lanes.of(&request);
        lane.send(request).await.map_err(|_| gone())?;
        answer_of(answer, lane).await.unwrap_or_else(|| Err(gone()))
    }

    pub(super) async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired, Error> {
        if request.mode != Mode::Exclusive {
            let form = self.form;
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{form} supports only the mutex: remove it to use readers and permits"),
            ));
        }
        let want = Want {
            name: request.name.clone(),
            claim: request.claim,
            lease: request.lease,
            is_last: false,
        };
        self.send(|reply| MutexRequest::Acquire(want, reply)).await
    }
}
