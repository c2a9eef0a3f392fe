//! One attempt of a claim to win a majority.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, Error, ErrorKind, FencingToken, Grant, Instant, LockName,
    Renewal, Renewed, machine::conflict,
};
use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    book::Book,
    member::Member,
    tally::{Tally, Verdict, majority},
};
use crate::{
    error::no_token,
    later::LATER,
    owed::{background, give_up, give_up_later},
    reply::Standing,
};

/// How long to wait for more answers before a token is written back, which is a round trip too.
const LATECOMERS: Duration = Duration::from_millis(5);

/// How long a master that is slower than the majority is waited for when a claim is given up.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The masters, and what this client remembers of its claims.
pub(super) struct Voters {
    pub(super) members: Vec<Arc<Member>>,
    /// The largest token seen.
    last: Mutex<u64>,
    pub(super) book: Book,
}

/// How an attempt went.
pub(super) enum Attempt {
    Won(Grant),
    Busy,
}

impl Voters {
    pub(super) fn new(members: Vec<Arc<Member>>) -> Self {
        Self { members, last: Mutex::new(0), book: Book::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// Tries once to win the lock. `again`: the claim is to try again when it is busy.
    pub(super) async fn attempt(
        &self,
        request: &AcquireRequest,
        again: bool,
    ) -> Result<Attempt, Error> {
        let claim = self.book.id(request.claim);
        let proposal = self.proposal();
        // Of those that grant, when the first was asked.
        let mut since = Instant::from_nanos(u64::MAX);
        let mut asking: FuturesUnordered<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(at, member)| {
                let asking = member.acquire(request, claim, proposal);
                async move { (at, asking.await) }
            })
            .collect();
        let mut tally = Tally::default();
        let mut won: Vec<(usize, FencingToken)> = Vec::new();
        let (mut refused, mut failed, mut unread, mut spent) = (None, None, Vec::new(), 0);
        let mut open = vec![true; self.count()];
        while let Some((at, answer)) = asking.next().await {
            match answer {
                Ok((Standing::Held(token), sent)) => {
                    since = since.min(sent);
                    won.push((at, token));
                    tally.count(Some(true));
                }
                Ok((other, _)) => {
                    open[at] = false;
                    match other {
                        Standing::Conflict(capacity) => refused = Some(capacity),
                        Standing::Spent => spent += 1,
                        _ => {}
                    }
                    tally.count(Some(false));
                }
                Err(error) => {
                    // One that can't have taken it has nothing to give back.
                    open[at] = error.certainty() == dlock_core::Certainty::Unknown;
                    if error.kind() == ErrorKind::Protocol {
                        unread.push(error.clone());
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
            // The others may make the majority that is of one mind.
            while agreed(&won, self.count()).is_none() {
                let next = tokio::time::timeout(LATECOMERS, asking.next()).await;
                let Ok(Some((at, answer))) = next else { break };
                if let Ok((Standing::Held(token), sent)) = answer {
                    since = since.min(sent);
                    won.push((at, token));
                }
            }
            if let Some(token) = self.agree(request, claim, &won).await {
                // Who has not answered yet takes the lock too, before it can be released.
                if !asking.is_empty() {
                    background(async move { while asking.next().await.is_some() {} });
                }
                self.book.held(request.claim, since, request.lease);
                return Ok(Attempt::Won(Grant::new(token, request.tokens, since)));
            }
        }
        drop(asking);
        let outcome = match (refused, failed) {
            (Some(capacity), _) => Err(conflict(request.mode, capacity)),
            // No majority can count on.
            _ if spent > self.count() - majority(self.count()) => Err(no_token()),
            // They have answered, with something that can't be read.
            _ if unread.len() > self.count() - majority(self.count()) => Err(unread.swap_remove(0)),
            // Not for want of answers, if those that answered could be a majority.
            (None, Some(error)) if tally.unknown > self.count() - majority(self.count()) => {
                Err(no_majority(Some(&error), tally, self.count()))
            }
            _ => Ok(Attempt::Busy),
        };
        // A claim that was busy and does not wait is over, and so is one that nothing helps.
        let again = match &outcome {
            Ok(_) => again,
            Err(error) => error.is_transient(),
        };
        self.give_back(request, claim, &open, again).await;
        outcome
    }

    /// The token of a claim that a majority holds the lock for: what a majority of them took, or
    /// else the largest, written back until a majority has it.
    async fn agree(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        won: &[(usize, FencingToken)],
    ) -> Option<FencingToken> {
        if let Some(token) = agreed(won, self.count()) {
            self.seen(token, request.tokens);
            return Some(token);
        }
        let largest = won.iter().map(|(_, token)| *token).max()?;
        self.seen(largest, request.tokens);
        let mut have = won.iter().filter(|(_, token)| *token == largest).count();
        let mut raising: FuturesUnordered<_> = won
            .iter()
            .filter(|(_, token)| *token < largest)
            .map(|(at, _)| self.members[*at].raise(request, claim, largest))
            .collect();
        while have < majority(self.count()) {
            if matches!(raising.next().await?, Ok(true)) {
                have += 1;
            }
        }
        Some(largest)
    }

    /// Takes back what an attempt got: waits a little for the masters, and sees to the slow ones in
    /// the background, also when the attempt is dropped meanwhile. If the claim is to be used again,
    /// it gets another id, which no copy of these releases can meet.
    async fn give_back(
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
            self.book.again(request.claim, Clock::Boot.now(), request.lease);
        }
        let (told, all) = oneshot::channel();
        let name = request.name.clone();
        background(async move {
            let mut away = Vec::new();
            answers(&mut releasing, &mut away).await;
            // Nobody may wait for it any more.
            let _ = told.send(());
            for member in &away {
                give_up_later(member, &name, claim, 0, Clock::Boot.now(), lease_ends);
            }
        });
        let _ = tokio::time::timeout((request.lease / 8).min(STRAGGLERS), all).await;
    }

    fn seen(&self, token: FencingToken, tokens: u32) {
        let mut last = self.last.lock();
        *last = (*last).max(token.get() + u64::from(tokens) - 1);
    }

    /// A token above all that this client has seen, near the masters' clocks.
    fn proposal(&self) -> u64 {
        let time = self.members.iter().map(|member| member.time()).max().unwrap_or(0);
        time.max(*self.last.lock() + 1)
    }

    /// Starts leases anew everywhere; how each stands once a majority has said so. A master that
    /// does not answer is not waited for, or its silence would cost every short lease. What too few
    /// can say of one claim is no error for the others.
    pub(super) async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let claims: Arc<[_]> = renewals
            .iter()
            .map(|r| (self.book.id(r.claim.id), r.claim.name.clone(), r.mode, r.lease))
            .collect();
        let sent = Clock::Boot.now();
        for renewal in renewals {
            self.book.held(renewal.claim.id, sent, renewal.lease);
        }
        let mut asking: FuturesUnordered<_> = self
            .members
            .iter()
            .map(|member| {
                let (member, claims) = (Arc::clone(member), Arc::clone(&claims));
                async move {
                    let claims: Vec<_> = claims
                        .iter()
                        .map(|(id, name, mode, lease)| (*id, name, *mode, *lease))
                        .collect();
                    member.keep(&claims).await
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
                tally.count(said.as_ref().ok().and_then(|kept| kept.get(at).copied()));
            }
            failed = said.err().or(failed);
        }
        if !asking.is_empty() {
            background(async move { while asking.next().await.is_some() {} });
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

    /// Raises the tokens of a name on a majority, which every later grant meets.
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
            background(async move { while raising.next().await.is_some() {} });
        }
        match (tally.verdict(self.count()), failed) {
            (Verdict::Yes, _) => Ok(()),
            // No number of masters can count so far.
            (_, Some(error)) if !error.is_transient() => Err(error),
            (_, failed) => Err(no_majority(failed.as_ref(), tally, self.count())),
        }
    }

    /// Releases a claim everywhere. Once a majority has, the others get a little time, so that a
    /// process that ends next leaves nothing; then they are seen to in the background.
    pub(super) async fn release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> (Tally, Option<Error>) {
        let lease_ends = self.lease_ends(claim);
        let claim = self.book.id(claim);
        let mut releasing = releasing(self.members.clone(), name, claim, used);
        let (mut tally, mut failed, mut away) = (Tally::default(), None, Vec::new());
        while tally.verdict(self.count()) == Verdict::Open
            && let Some((member, answer)) = releasing.next().await
        {
            tally.count(answer.as_ref().ok().copied());
            if let Err(error) = answer {
                failed = Some(error);
                away.push(member);
            }
        }
        let rest = answers(&mut releasing, &mut away);
        let _ = tokio::time::timeout(STRAGGLERS, rest).await;
        if !releasing.is_empty() || !away.is_empty() {
            let name = name.clone();
            background(async move {
                answers(&mut releasing, &mut away).await;
                for member in &away {
                    give_up_later(member, &name, claim, used, Clock::Boot.now(), lease_ends);
                }
            });
        }
        (tally, failed)
    }

    /// When all that masters hold for a claim has ended. Of one that is not this client's nothing is
    /// known.
    fn lease_ends(&self, claim: ClaimId) -> Instant {
        let known = self.book.lease_ends(claim);
        known.unwrap_or_else(|| Clock::Boot.now().saturating_add(LATER))
    }
}

/// Releases a claim on these masters: how each answers.
fn releasing(
    members: Vec<Arc<Member>>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
) -> FuturesUnordered<impl Future<Output = (Arc<Member>, Result<bool, Error>)> + Send + use<>> {
    let releasing = members.into_iter().map(|member| {
        let name = name.clone();
        async move {
            let answer = give_up(&member, &name, claim, used).await;
            (member, answer)
        }
    });
    releasing.collect()
}

/// Waits for all answers to a release, and notes who gave none.
async fn answers(
    releasing: &mut (impl Stream<Item = (Arc<Member>, Result<bool, Error>)> + Unpin),
    away: &mut Vec<Arc<Member>>,
) {
    while let Some((member, answer)) = releasing.next().await {
        away.extend(answer.is_err().then_some(member));
    }
}

/// The token that a majority of so many took.
fn agreed(won: &[(usize, FencingToken)], of: usize) -> Option<FencingToken> {
    let took = |token| won.iter().filter(|(_, other)| *other == token).count();
    won.iter().map(|(_, token)| *token).find(|token| took(*token) >= majority(of))
}

/// Too few masters can be asked, one of which gave this error.
pub(super) fn no_majority(error: Option<&Error>, tally: Tally, of: usize) -> Error {
    let quiet = Error::new(ErrorKind::Unavailable, "masters do not answer");
    let error = error.unwrap_or(&quiet);
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{} of {of} masters do not answer, and a majority has to: see that they run ({error})",
            tally.unknown
        ),
    )
    .with_source(error.clone())
}
