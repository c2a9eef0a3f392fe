//! One attempt of a claim to win a majority.

use std::{collections::HashMap, sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, Error, ErrorKind, FencingToken, Grant, LockName,
    machine::conflict,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;

use super::{
    member::Member,
    tally::{Tally, Verdict, majority},
};
use crate::reply::Standing;

/// The masters, and what this client remembers of its claims.
pub(super) struct Voters {
    pub(super) members: Vec<Arc<Member>>,
    /// The largest token seen.
    last: Mutex<u64>,
    /// By which id a claim is known to the masters, where that is not its own: an attempt that was
    /// given back without all masters confirming it must not be mixed up with the next.
    ids: Mutex<HashMap<ClaimId, ClaimId>>,
}

/// How an attempt went.
pub(super) enum Attempt {
    Won(Grant),
    Busy,
}

impl Voters {
    pub(super) fn new(members: Vec<Arc<Member>>) -> Self {
        Self { members, last: Mutex::new(0), ids: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// The id by which the masters know a claim.
    pub(super) fn id(&self, claim: ClaimId) -> ClaimId {
        self.ids.lock().get(&claim).copied().unwrap_or(claim)
    }

    /// Nothing more is asked of this claim.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.ids.lock().remove(&claim);
    }

    /// Tries once to win the lock. `again`: the claim is to try again when it is busy.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        request: &AcquireRequest,
        again: bool,
    ) -> Result<Attempt, Error> {
        let claim = self.id(request.claim);
        let proposal = self.proposal();
        let sent = Clock::Boot.now();
        let mut asking: FuturesUnordered<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(at, member)| {
                let (member, request) = (Arc::clone(member), request.clone());
                async move { (at, member.acquire(&request, claim, proposal).await) }
            })
            .collect();
        let mut tally = Tally::default();
        let mut won: Vec<(usize, FencingToken)> = Vec::new();
        let (mut refused, mut failed) = (None, None);
        let mut open = vec![true; self.count()];
        while let Some((at, answer)) = asking.next().await {
            match answer {
                Ok(Standing::Held { token, .. }) => {
                    won.push((at, token));
                    tally.count(Some(true));
                }
                Ok(other) => {
                    open[at] = false;
                    if let Standing::Conflict(capacity) = other {
                        refused = Some(capacity);
                    }
                    tally.count(Some(false));
                }
                Err(error) => {
                    // One that can't have taken it has nothing to give back.
                    open[at] = error.certainty() == dlock_core::Certainty::Unknown;
                    failed = Some(error);
                    tally.count(None);
                }
            }
            if tally.yes >= majority(self.count()) || !tally.can_win(self.count()) {
                break;
            }
        }
        if tally.yes >= majority(self.count())
            && let Some(token) = self.agree(request, claim, &won).await
        {
            // Those that have not answered yet hold the lock too, or will say no.
            if !asking.is_empty() {
                self.background(async move { while asking.next().await.is_some() {} });
            }
            return Ok(Attempt::Won(Grant { token, tokens: request.tokens, since: sent }));
        }
        drop(asking);
        let again = refused.is_none() && (again || failed.is_some());
        self.give_back(request, claim, &open, again).await;
        match (refused, failed) {
            (Some(capacity), _) => Err(conflict(request.mode, capacity)),
            (None, Some(error)) if tally.no + tally.yes < majority(self.count()) => {
                Err(no_majority(&error, tally, self.count()))
            }
            _ => Ok(Attempt::Busy),
        }
    }

    /// Makes a majority agree on the largest of the tokens.
    async fn agree(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        won: &[(usize, FencingToken)],
    ) -> Option<FencingToken> {
        let largest = won.iter().map(|(_, token)| *token).max()?;
        self.seen(largest.get() + u64::from(request.tokens) - 1);
        let needed = majority(self.count());
        let mut agreed = won.iter().filter(|(_, token)| *token == largest).count();
        let mut raising: FuturesUnordered<_> = won
            .iter()
            .filter(|(_, token)| *token < largest)
            .map(|(at, _)| self.members[*at].raise(request, claim, largest))
            .collect();
        while agreed < needed {
            match raising.next().await {
                Some(Ok(true)) => agreed += 1,
                Some(_) => {}
                None => return None,
            }
        }
        Some(largest)
    }

    /// Takes back what an attempt got. Waits for a majority of the masters, and for the others in
    /// the background; if the claim is to be used again and one has not confirmed, it gets another
    /// id, so that a release on its way can't meet it.
    async fn give_back(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: ClaimId,
        open: &[bool],
        again: bool,
    ) {
        let (name, mut releasing) = (&request.name, FuturesUnordered::new());
        for (member, _) in self.members.iter().zip(open).filter(|(_, open)| **open) {
            let (member, name) = (Arc::clone(member), name.clone());
            releasing.push(async move { member.release(&name, claim, 0).await.is_ok() });
        }
        let patience = tokio::time::sleep((request.lease / 8).min(Duration::from_millis(100)));
        tokio::pin!(patience);
        let mut sure = true;
        loop {
            tokio::select! {
                confirmed = releasing.next() => match confirmed {
                    Some(confirmed) => sure &= confirmed,
                    None => break,
                },
                () = &mut patience => {
                    sure = false;
                    break;
                }
            }
        }
        if !releasing.is_empty() {
            self.background(async move { while releasing.next().await.is_some() {} });
        }
        if !sure && again {
            self.ids.lock().insert(request.claim, ClaimId::random());
        }
    }

    fn seen(&self, token: u64) {
        let mut last = self.last.lock();
        *last = (*last).max(token);
    }

    /// A token above all that this client has seen, near the masters' clocks.
    fn proposal(&self) -> u64 {
        let time = self.members.iter().map(|member| member.time()).max().unwrap_or(0);
        time.max(*self.last.lock() + 1)
    }

    /// Sees work through that nobody waits for.
    fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(work);
        }
    }

    /// Releases a claim everywhere: answers once a majority has, the others are seen to in the
    /// background.
    pub(super) async fn release(
        self: &Arc<Self>,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> (Tally, Option<Error>) {
        let claim = self.id(claim);
        let mut releasing: FuturesUnordered<_> = self
            .members
            .iter()
            .map(|member| {
                let (member, name) = (Arc::clone(member), name.clone());
                async move { member.release(&name, claim, used).await }
            })
            .collect();
        let (mut tally, mut failed) = (Tally::default(), None);
        while let Some(answer) = releasing.next().await {
            tally.count(answer.as_ref().ok().copied());
            failed = answer.err().or(failed);
            if tally.verdict(self.count()) != Verdict::Open {
                break;
            }
        }
        if !releasing.is_empty() {
            self.background(async move { while releasing.next().await.is_some() {} });
        }
        (tally, failed)
    }
}

/// Too few masters can be asked.
pub(super) fn no_majority(error: &Error, tally: Tally, of: usize) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{} of {of} masters do not answer, and a majority has to: see that they run ({error})",
            tally.unknown
        ),
    )
    .with_source(error.clone())
}
