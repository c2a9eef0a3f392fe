//! One attempt of a claim to win a majority.
//!
//! An attempt asks all masters, counts until a majority has granted or can't grant any more, agrees
//! on a token, and records the id of the claim, in this order. If this process dies in between,
//! the grants end with their leases. If a master's answer is lost, the claim may hold the lock
//! there, so that master gets the release as well, now or later. The next attempt uses another id,
//! so a late release can't remove its grants.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, Error, ErrorKind, FencingToken, Grant, Instant, LockName,
    Renewal, Renewed, SendFlag, machine::conflict,
};
use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    claim_ids::ClaimIds,
    member::Member,
    tally::{Tally, Verdict, agreed, blocks, majority},
};
use crate::{
    deferred_releases::RETRIED_FOR,
    error::no_token,
    release::{release, release_later, spawn},
    reply::{ClaimStatus, lease_argument},
    scripts::{KnownGrant, Renewing},
};

/// How long to wait for more answers before a token is written back, which costs a round trip.
const MORE_ANSWERS: Duration = Duration::from_millis(5);

/// How long a release waits for masters that are slower than the majority.
const SLOW_MASTERS: Duration = Duration::from_millis(100);

/// The largest block of tokens: those of a millisecond. Names share the tokens of a bucket, so unused
/// ones can't be returned, and larger blocks would make tokens run ahead of the clock.
const MOST_TOKENS: u32 = 1000;

/// The masters, and the claims that this client remembers.
pub(super) struct Voters {
    pub(super) members: Vec<Arc<Member>>,
    /// The largest token seen.
    last: Mutex<u64>,
    pub(super) ids: ClaimIds,
}

/// The outcome of an attempt.
pub(super) enum Attempt {
    Won(Grant),
    Busy,
}

impl Voters {
    pub(super) fn new(members: Vec<Arc<Member>>) -> Self {
        Self { members, last: Mutex::new(0), ids: ClaimIds::new() }
    }

    pub(super) fn count(&self) -> usize {
        #[cfg(dlock_sim)]
        if dlock_core::sim::has_mistake("one-vote-less") {
            // Then one vote less is a majority.
            return self.members.len() - 2;
        }
        self.members.len()
    }

    /// Tries once to win the lock. `again`: the claim will try again if the lock is busy. The flag
    /// begins when the request is sent to the first master, or when the attempt has failed without
    /// that.
    pub(super) async fn attempt(
        &self,
        request: &AcquireRequest,
        again: bool,
        flag: &SendFlag,
    ) -> Result<Attempt, Error> {
        let request = &request.clone().with_tokens(request.tokens.min(MOST_TOKENS));
        let claim = self.ids.id(request.claim);
        // All masters get the same number, so that a majority usually takes the same token.
        let proposal = self.proposal();
        // The time of the first request that a master granted: the start of the lease.
        let mut since = Instant::from_nanos(u64::MAX);
        let mut asking: FuturesUnordered<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(at, member)| {
                let asking = member.acquire(request, claim, proposal, flag.clone());
                async move { (at, asking.await) }
            })
            .collect();
        let (mut tally, mut won) = (Tally::default(), Vec::new());
        let (mut refused, mut failed, mut unread, mut spent) = (None, None, (0, None), 0);
        let mut open = vec![true; self.members.len()];
        while let Some((at, answer)) = asking.next().await {
            match answer {
                Ok((ClaimStatus::Held(token), sent)) => {
                    since = since.min(sent);
                    won.push((at, token));
                    tally.count(Some(true));
                }
                Ok((other, _)) => {
                    open[at] = false;
                    match other {
                        ClaimStatus::Conflict(capacity) => refused = Some(capacity),
                        ClaimStatus::NoToken => spent += 1,
                        _ => {}
                    }
                    tally.count(Some(false));
                }
                Err(error) => {
                    // Without a grant there is nothing to release.
                    open[at] = error.certainty() == dlock_core::Certainty::Unknown;
                    if error.kind() == ErrorKind::Protocol {
                        unread = (unread.0 + 1, Some(error.clone()));
                    }
                    failed = Some(error);
                    tally.count(None);
                }
            }
            if tally.yes >= majority(self.count()) || !tally.can_win(self.count()) {
                break;
            }
        }
        if tally.yes >= majority(self.count()) {
            // More answers may complete a majority with one token.
            while agreed(&won, self.count()).is_none() {
                let next = tokio::time::timeout(MORE_ANSWERS, asking.next()).await;
                let Ok(Some((at, answer))) = next else { break };
                if let Ok((ClaimStatus::Held(token), sent)) = answer {
                    since = since.min(sent);
                    won.push((at, token));
                }
            }
            if let Some(token) = self.agree(request, claim, &won).await {
                // The other masters grant the lock, too. Their requests continue, so that a release
                // comes after them.
                if !asking.is_empty() {
                    spawn(async move { while asking.next().await.is_some() {} });
                }
                self.ids.held(request.claim, since, request.lease);
                return Ok(Attempt::Won(Grant::new(token, request.tokens, since)));
            }
        }
        drop(asking);
        // From here on the claim may be remembered by another id, until the core releases it.
        flag.begin();
        let outcome = match (refused, failed, unread) {
            (Some(capacity), ..) => Err(conflict(request.mode, capacity)),
            // A majority has no tokens left.
            _ if blocks(spent, self.count()) => Err(no_token()),
            // The masters have answered, but a record can't be read.
            (_, _, (masters, Some(error))) if blocks(masters, self.count()) => Err(error),
            // `Unavailable` only if the masters that answered can't be a majority.
            (None, Some(error), _) if blocks(tally.unknown, self.count()) => {
                Err(no_majority(Some(&error), tally, self.count()))
            }
            _ => Ok(Attempt::Busy),
        };
        // Without another attempt the claim is over, and needs no new id.
        let again = outcome.as_ref().map_or_else(Error::is_transient, |_| again);
        self.release_grants(request, claim, &open, again).await;
        outcome
    }

    /// Returns the token of a claim that a majority has granted: the one that a majority took, or
    /// else the largest, which is written back until a majority has it.
    async fn agree(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        won: &[(usize, FencingToken)],
    ) -> Option<FencingToken> {
        if let Some(token) = agreed(won, self.count()) {
            self.record_token(token, request.tokens);
            return Some(token);
        }
        let largest = won.iter().map(|(_, token)| *token).max()?;
        self.record_token(largest, request.tokens);
        let mut have = won.iter().filter(|(_, token)| *token == largest).count();
        let mut raising: FuturesUnordered<_> = won
            .iter()
            .filter(|(_, token)| *token < largest)
            .map(|(at, _)| self.members[*at].write_token(request, claim, largest))
            .collect();
        // If too few can be raised, the attempt fails: a later grant could get this token again.
        while have < majority(self.count()) {
            if matches!(raising.next().await?, Ok(true)) {
                have += 1;
            }
        }
        Some(largest)
    }

    /// Releases the grants of a failed attempt. Waits briefly for the masters, and continues with
    /// the slow ones in the background, even if the attempt is dropped. If the claim is used again,
    /// it gets another id, which no copy of these releases can match.
    async fn release_grants(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        open: &[bool],
        again: bool,
    ) {
        let members = self.members.iter().zip(open).filter(|(_, open)| **open);
        let members = members.map(|(member, _)| Arc::clone(member)).collect();
        let mut releasing = releasing(members, &request.name, claim, 0);
        let lease_ends = Clock::Boot.now().saturating_add(request.lease);
        if again {
            self.ids.replace(request.claim, Clock::Boot.now(), request.lease);
        }
        let (done, all) = oneshot::channel();
        let name = request.name.clone();
        spawn(async move {
            let mut unreachable = Vec::new();
            answers(&mut releasing, &mut unreachable).await;
            // The attempt may have timed out or been dropped.
            let _ = done.send(());
            for member in &unreachable {
                let now = Clock::Boot.now();
                release_later(member, &name, claim, 0, now..now, lease_ends);
            }
        });
        let _ = tokio::time::timeout((request.lease / 8).min(SLOW_MASTERS), all).await;
    }

    fn record_token(&self, token: FencingToken, tokens: u32) {
        let mut last = self.last.lock();
        *last = (*last).max(token.get() + u64::from(tokens) - 1);
    }

    /// Returns a token above all that this client has seen, close to the masters' clocks.
    fn proposal(&self) -> u64 {
        let time = self.members.iter().map(|member| member.time()).max().unwrap_or(0);
        time.max(*self.last.lock() + 1)
    }

    /// Renews leases on all masters, and returns once a majority has decided on each claim. Does
    /// not wait for a silent master, since such a wait would cost every short lease. If too few
    /// masters answer for one claim, the other claims get no error.
    ///
    /// A vote counts whatever its token: masters may have granted one attempt with different tokens,
    /// and without a queue no master grants a claim again.
    pub(super) async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let claims: Arc<[_]> = renewals
            .iter()
            .map(|r| {
                let lease = lease_argument(r.lease, r.is_last);
                (self.ids.id(r.claim.id), r.claim.name.clone(), r.mode, lease)
            })
            .collect();
        let sent = Clock::Boot.now();
        for renewal in renewals {
            self.ids.held(renewal.claim.id, sent, renewal.lease);
        }
        let mut asking: FuturesUnordered<_> = self
            .members
            .iter()
            .map(|member| {
                let (member, claims) = (Arc::clone(member), Arc::clone(&claims));
                async move {
                    let claims: Vec<_> = claims
                        .iter()
                        .map(|(claim, name, mode, lease)| Renewing {
                            claim: *claim,
                            name,
                            mode: *mode,
                            lease: *lease,
                            grant: KnownGrant::Other,
                        })
                        .collect();
                    member.renew(&claims).await
                }
            })
            .collect();
        let mut tallies = vec![Tally::default(); renewals.len()];
        let mut failed = None;
        let of = self.count();
        while tallies.iter().any(|tally| tally.verdict(of) == Verdict::Open)
            && let Some(said) = asking.next().await
        {
            for (at, tally) in tallies.iter_mut().enumerate() {
                tally.count(said.as_ref().ok().and_then(|renewed| renewed.get(at).copied()));
            }
            failed = said.err().or(failed);
        }
        if !asking.is_empty() {
            spawn(async move { while asking.next().await.is_some() {} });
        }
        let renewed = |tally: &Tally| match tally.verdict(of) {
            Verdict::Yes => Renewed::Kept,
            Verdict::No => Renewed::Lost,
            Verdict::Unknown | Verdict::Open => Renewed::Unknown,
        };
        let renewed: Vec<_> = tallies.iter().map(renewed).collect();
        match tallies.first() {
            Some(tally) if renewed.iter().all(|answer| *answer == Renewed::Unknown) => {
                Err(no_majority(failed.as_ref(), *tally, of))
            }
            _ => Ok(renewed),
        }
    }

    /// Raises the tokens of a name on a majority. Every later grant needs a master of that
    /// majority.
    pub(super) async fn raise_tokens(
        &self,
        name: &LockName,
        above: FencingToken,
    ) -> Result<(), Error> {
        let mut raising: FuturesUnordered<_> = self
            .members
            .iter()
            .map(|member| {
                let (member, name) = (Arc::clone(member), name.clone());
                async move { member.raise_tokens(&name, above).await }
            })
            .collect();
        let (mut tally, mut failed) = (Tally::default(), None);
        while tally.verdict(self.count()) == Verdict::Open
            && let Some(answer) = raising.next().await
        {
            tally.count(answer.as_ref().ok().copied());
            failed = answer.err().or(failed);
        }
        if !raising.is_empty() {
            spawn(async move { while raising.next().await.is_some() {} });
        }
        match (tally.verdict(self.count()), failed) {
            (Verdict::Yes, _) => Ok(()),
            // Masters can't count this far.
            (_, Some(error)) if !error.is_transient() => Err(error),
            (_, failed) => Err(no_majority(failed.as_ref(), tally, self.count())),
        }
    }

    /// Releases a claim on all masters. After a majority has answered, the others get a little
    /// time, so that a process that ends next leaves no grants. The rest continues in the
    /// background.
    pub(super) async fn release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> (Tally, Option<Error>) {
        // Read before the id changes: the lease is known by the claim's own id.
        let lease_ends = self.lease_ends(claim);
        let claim = self.ids.id(claim);
        let mut releasing = releasing(self.members.clone(), name, claim, used);
        let (mut tally, mut failed, mut unreachable) = (Tally::default(), None, Vec::new());
        while tally.verdict(self.count()) == Verdict::Open
            && let Some((member, answer)) = releasing.next().await
        {
            tally.count(answer.as_ref().ok().copied());
            if let Err(error) = answer {
                failed = Some(error);
                unreachable.push(member);
            }
        }
        let rest = answers(&mut releasing, &mut unreachable);
        let _ = tokio::time::timeout(SLOW_MASTERS, rest).await;
        if !releasing.is_empty() || !unreachable.is_empty() {
            let name = name.clone();
            spawn(async move {
                answers(&mut releasing, &mut unreachable).await;
                for member in &unreachable {
                    let now = Clock::Boot.now();
                    release_later(member, &name, claim, used, now..now, lease_ends);
                }
            });
        }
        (tally, failed)
    }

    /// Returns the time when all leases of a claim have ended. For a claim of another client it is
    /// not known.
    fn lease_ends(&self, claim: ClaimId) -> Instant {
        let known = self.ids.lease_ends(claim);
        known.unwrap_or_else(|| Clock::Boot.now().saturating_add(RETRIED_FOR))
    }
}

/// Releases a claim on these masters. Yields the answer of each.
fn releasing(
    members: Vec<Arc<Member>>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
) -> FuturesUnordered<impl Future<Output = (Arc<Member>, Result<bool, Error>)> + Send + use<>> {
    let releasing = members.into_iter().map(|member| {
        let name = name.clone();
        async move {
            let answer = release(&member, &name, claim, used).await;
            (member, answer)
        }
    });
    releasing.collect()
}

/// Waits for all answers to a release, and collects the masters that failed.
async fn answers(
    releasing: &mut (impl Stream<Item = (Arc<Member>, Result<bool, Error>)> + Unpin),
    unreachable: &mut Vec<Arc<Member>>,
) {
    while let Some((member, answer)) = releasing.next().await {
        unreachable.extend(answer.is_err().then_some(member));
    }
}

/// Returns the error for the case that too few masters answer. `error` is the error of one of them.
pub(super) fn no_majority(error: Option<&Error>, tally: Tally, of: usize) -> Error {
    let silent = Error::new(ErrorKind::Unavailable, "masters do not answer");
    let error = error.unwrap_or(&silent);
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{} of {of} masters do not answer, so there is no majority: check that they run \
             ({error})",
            tally.unknown
        ),
    )
    .with_source(error.clone())
}
