//! What a task is asked for that has locks for the mutex alone.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, Error, ErrorKind, Finding, LockName, LockState, Mode,
    Released,
};
use tokio::sync::oneshot;

use crate::engine::{Lanes, Listed, Message, Range, answer_of, gone};

/// What a caller asks for, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Ask {
    Take(Want, Reply<Acquired>),
    /// Whether each claim is held, whose lease then starts anew.
    Renew(Vec<Want>, Reply<Vec<bool>>),
    GiveBack(LockName, ClaimId, Reply<Released>),
    Look(LockName, Reply<LockState>),
    Names(Range, Reply<Vec<Listed>>),
    Findings(Reply<Vec<Finding>>),
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

impl Message for Ask {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew(..) | Self::GiveBack(..))
    }
}

/// What somebody wants of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) name: LockName,
    pub(crate) claim: ClaimId,
    pub(crate) lease: Duration,
}

/// The callers' end.
#[derive(Clone)]
pub(super) struct Asks {
    pub(super) lanes: Lanes<Ask>,
    /// What the backend is called, with the option that chooses it.
    pub(super) form: &'static str,
}

impl Asks {
    pub(super) async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> Ask) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let ask = ask(reply);
        let lane = self.lanes.of(&ask);
        lane.send(ask).await.map_err(|_| gone())?;
        answer_of(answer, lane).await.unwrap_or_else(|| Err(gone()))
    }

    pub(super) async fn take(&self, request: &AcquireRequest) -> Result<Acquired, Error> {
        if request.mode != Mode::Exclusive {
            let form = self.form;
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{form} supports only the mutex: remove it to use readers and permits"),
            ));
        }
        let want = Want { name: request.name.clone(), claim: request.claim, lease: request.lease };
        self.ask(|reply| Ask::Take(want, reply)).await
    }
}
