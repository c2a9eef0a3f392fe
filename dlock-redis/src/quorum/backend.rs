//! The backend over a quorum.
//!
//! [`ClaimIds`](super::claim_ids::ClaimIds) maps a claim of the core to the id by which the masters
//! know it. Every exit of `acquire` and `release` updates it: an id is kept while the claim may be
//! tried or released again, and forgotten when a majority has answered. Otherwise a release could be
//! sent with an id that no master knows.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Backoff, Claim, ClaimId, ClaimState, Clock,
    ConfigIssue, Error, ErrorKind, Exclusion, Fencing, FencingToken, Finding, Grant, Guarantees,
    LockName, LockOptions, LockState, Mode, Notes, Queue, Released, Renewal, Renewed, Scope,
    SendFlag,
};
use futures_util::future::join_all;

use super::{
    member::{BATCH, Member},
    tally::{Tally, Verdict, majority},
    vote::{Attempt, Voters, no_majority},
};
use crate::{config::RedisConfig, session::check_lease};

/// Independent masters, as one client sees them.
pub(crate) struct Quorum {
    store: Arc<str>,
    voters: Arc<Voters>,
    guard: Duration,
    response_timeout: Duration,
}

impl Quorum {
    /// Connects to all masters. Fails without a majority.
    pub(crate) async fn connect(config: RedisConfig) -> Result<Arc<Self>, Error> {
        let store: Arc<str> = config.store().into();
        let guard = config.restart_guard.unwrap_or(LockOptions::new().lease());
        let config = config.with_restart_guard(guard);
        let opened = config.addresses.iter().map(|address| Member::open(&config, address));
        let (mut members, mut failed) = (Vec::new(), Vec::new());
        for (member, first) in join_all(opened).await {
            members.push(Arc::new(member));
            failed.extend(first.err());
        }
        let reached = members.len() - failed.len();
        if reached < majority(members.len()) {
            let tally = Tally { yes: reached, no: 0, unknown: failed.len() };
            // An error that no retry cures is reported before others.
            failed.sort_by_key(Error::is_transient);
            let first = failed.swap_remove(0);
            let error = match first.is_transient() {
                true => no_majority(Some(&first), tally, members.len()),
                false => first,
            };
            return Err(error.during("connect").with_store(&store));
        }
        if let Some((one, other)) = twins(&members) {
            return Err(Error::config(
                ConfigIssue::Url,
                format!(
                    "{one} and {other} are one server, which would have two votes: give each master \
                     of the quorum once"
                ),
            )
            .during("connect")
            .with_store(&store));
        }
        // The link of an unreachable master continues to connect. A master that refuses has to be
        // repaired by people, so the log names it.
        for error in failed.iter().filter(|error| !error.is_transient()) {
            tracing::warn!(
                target: "dlock",
                %error, store = &*store,
                "quorum master unusable: fewer failures are tolerated"
            );
        }
        let voters = Arc::new(Voters::new(members));
        let response_timeout = config.response_timeout;
        Ok(Arc::new(Self { store, voters, guard, response_timeout }))
    }
}

/// Returns the addresses of two masters that are one server, by its run id.
fn twins(members: &[Arc<Member>]) -> Option<(&str, &str)> {
    let mut known = HashMap::new();
    members.iter().find_map(|member| {
        let earlier = known.insert(member.run_id()?, member.address())?;
        Some((earlier, member.address()))
    })
}

/// Refuses permits, since a majority can't keep a count, and refuses leases that are longer than
/// the guard.
fn check(request: &AcquireRequest, guard: Duration) -> Result<(), Error> {
    check_lease(request.lease, guard)?;
    match request.mode {
        Mode::Permits { .. } => Err(Error::new(
            ErrorKind::Unsupported,
            "a quorum has no semaphores, because majorities don't keep a count: use one server, \
             Sentinel or a cluster for them",
        )),
        _ => Ok(()),
    }
}

#[async_trait]
impl Backend for Quorum {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        // Without the guard, a master that restarts empty votes twice. So does one server with two
        // addresses, which a master that was unreachable at first may turn out to be.
        let members = &self.voters.members;
        let safe = members.iter().all(|member| member.keeps_grants()) && twins(members).is_none();
        Guarantees::WEAKEST
            .with_exclusion(if safe { Exclusion::Failover } else { Exclusion::Nothing })
            .with_fencing(Fencing::Clock)
            .with_scope(Scope::Network)
            .with_notes(Notes::Kept)
    }

    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        check_lease(lease, self.guard)
    }

    fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (voters, request, guard) = (Arc::clone(&self.voters), request.clone(), self.guard);
        Answer::unsent(|flag| async move {
            // A waiter will send the claim again, so its id must stay known.
            let waits = request.queue == Queue::Enqueue;
            let attempt = match check(&request, guard) {
                Ok(()) => voters.attempt(&request, waits, &flag).await,
                Err(error) => Err(error),
            };
            match attempt {
                Ok(Attempt::Won(grant)) => Ok(Acquired::Granted(grant)),
                Ok(Attempt::Busy) if waits => Ok(Acquired::Queued),
                Ok(Attempt::Busy) => {
                    voters.ids.forget(request.claim);
                    Ok(Acquired::Busy)
                }
                Err(error) => {
                    if !waits || !error.is_transient() {
                        voters.ids.ends(request.claim, Clock::Boot.now());
                    }
                    Err(error)
                }
            }
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let mut pause = Backoff::of_polls(request.lease);
        loop {
            // `acquire` has just tried.
            pause.wait().await;
            match self.voters.attempt(request, true, &SendFlag::new()).await {
                Ok(Attempt::Won(grant)) => return Ok(grant),
                Ok(Attempt::Busy) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let mut answers = Vec::with_capacity(renewals.len());
        let mut failed = None;
        for batch in renewals.chunks(BATCH) {
            let renewed = match self.voters.renew(batch).await {
                Ok(renewed) => renewed,
                Err(error) => {
                    failed = failed.or(Some(error));
                    vec![Renewed::Unknown; batch.len()]
                }
            };
            for (renewal, answer) in batch.iter().zip(renewed) {
                answers.push(match answer {
                    Renewed::Lost => self.loss_reason(renewal).await,
                    other => other,
                });
            }
        }
        match failed {
            Some(error) if answers.iter().all(|answer| *answer == Renewed::Unknown) => Err(error),
            _ => Ok(answers),
        }
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (voters, claim) = (Arc::clone(&self.voters), claim.clone());
        Answer::later(async move {
            let (tally, failed) = voters.release(&claim.name, claim.id, claim.used).await;
            let released = match tally.verdict(voters.count()) {
                Verdict::Yes => Released::Released,
                Verdict::No => Released::AlreadyLost,
                Verdict::Unknown | Verdict::Open => {
                    voters.ids.ends(claim.id, Clock::Boot.now());
                    return Err(no_majority(failed.as_ref(), tally, voters.count()));
                }
            };
            voters.ids.forget(claim.id);
            Ok(released)
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let replies = join_all(self.voters.members.iter().map(|member| member.inspect(name))).await;
        let (states, _) = self.majority_answers(replies)?;
        Ok(merged(&states, majority(self.voters.count())))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for Quorum {
    /// A held name is held on a majority, but some of that majority may not have answered.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let replies = join_all(self.voters.members.iter().map(|member| member.list(prefix))).await;
        let (lists, silent) = self.majority_answers(replies)?;
        let mut votes = BTreeMap::<LockName, usize>::new();
        for name in lists.into_iter().flatten() {
            *votes.entry(name).or_default() += 1;
        }
        // A master that did not answer may have any name, so it counts for each name.
        let needed = majority(self.voters.count());
        let held = votes.into_iter().filter(|(_, votes)| votes + silent >= needed);
        Ok(held.take(limit).map(|(name, _)| name).collect())
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let replies = join_all(self.voters.members.iter().map(|member| member.examine())).await;
        let all = self.voters.count();
        let (mut findings, mut failed) = (Vec::new(), Vec::new());
        for (address, reply) in replies {
            match reply {
                Ok(found) => findings.push((address, found)),
                Err(error) => failed.push((address, error)),
            }
        }
        if let (true, Some((_, error))) = (findings.is_empty(), failed.first()) {
            let tally = Tally { yes: 0, no: 0, unknown: all };
            return Err(no_majority(Some(error), tally, all));
        }
        let mut merged = vec![masters(findings.len(), all)];
        if let Some((one, other)) = twins(&self.voters.members) {
            merged.push(Finding::wrong(
                "quorum",
                format!("{one} and {other} are one server, which has two votes"),
                "give each master of the quorum once, and restart the clients",
            ));
        }
        for (address, error) in failed {
            merged.push(Finding::warning(
                "server",
                format!("{address} does not answer ({error})"),
                "check that it runs, and that this machine can reach it",
            ));
        }
        merged.extend(crate::examine::merged(findings));
        Ok(merged)
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.voters.raise_tokens(name, above).await
    }
}

impl Quorum {
    /// Returns the answers of the masters, if a majority answers, and the number of masters that
    /// did not answer.
    fn majority_answers<T>(
        &self,
        replies: Vec<Result<T, Error>>,
    ) -> Result<(Vec<T>, usize), Error> {
        let (mut answers, mut failed) = (Vec::new(), Vec::new());
        for answer in replies {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failed.push(error),
            }
        }
        if answers.len() < majority(self.voters.count()) {
            // The masters have answered, but a record can't be read.
            let unread = failed.iter().all(|error| error.kind() == ErrorKind::Protocol);
            if let Some(error) = failed.first().filter(|_| unread) {
                return Err(error.clone());
            }
            let tally = Tally { yes: answers.len(), no: 0, unknown: failed.len() };
            return Err(no_majority(failed.first(), tally, self.voters.count()));
        }
        Ok((answers, failed.len()))
    }

    /// Checks why a claim is not held: whether a majority has lost its data about the name.
    async fn loss_reason(&self, renewal: &Renewal) -> Renewed {
        let Some(token) = renewal.token else { return Renewed::Lost };
        let name = &renewal.claim.name;
        let replies = join_all(self.voters.members.iter().map(|member| member.inspect(name))).await;
        let forgot = |state: &&LockState| state.last_token.is_none_or(|last| last < token);
        match replies.iter().flatten().filter(forgot).count() >= majority(self.voters.count()) {
            true => Renewed::Forgotten,
            false => Renewed::Lost,
        }
    }
}

/// Returns the finding about the number of masters that answer.
fn masters(up: usize, all: usize) -> Finding {
    let found = format!("{up} of {all} masters answer");
    let remedy = "check that the others run, and that this machine can reach them";
    match up {
        _ if up == all => Finding::fine("quorum", found),
        _ if up >= majority(all) => Finding::warning("quorum", found, remedy),
        _ => Finding::wrong("quorum", format!("{found}, which is no majority"), remedy),
    }
}

/// Returns the state on which a majority agrees.
fn merged(states: &[LockState], needed: usize) -> LockState {
    let mut seen: HashMap<ClaimId, Vec<ClaimState>> = HashMap::new();
    for holder in states.iter().flat_map(|state| &state.holders) {
        seen.entry(holder.claim).or_default().push(holder.clone());
    }
    let mut holders: Vec<ClaimState> = seen
        .into_values()
        .filter(|votes| votes.len() >= needed)
        .filter_map(|votes| {
            let agreed =
                |vote: &&ClaimState| votes.iter().filter(|other| other.token == vote.token).count();
            let mut vote = votes.iter().max_by_key(agreed)?.clone();
            // The note of any master that has one.
            vote.note = votes.iter().find_map(|vote| vote.note.clone());
            // The lock is held until the masters with an unexpired lease are no longer a majority.
            vote.remaining = most(votes.iter().map(|vote| vote.remaining), needed)?;
            // A minority may still have the mode from before a downgrade.
            let weight = most(votes.iter().map(|vote| vote.mode.weight()), needed)?;
            vote.mode = Mode::from_weight(weight, vote.mode.capacity());
            // Not known: the token may come from another master's clock.
            vote.age = None;
            Some(vote)
        })
        .collect();
    holders.sort_by_key(|holder| holder.token);
    let last = states.iter().filter_map(|state| state.last_token).max();
    LockState::new(holders, Vec::new(), last)
}

/// Returns the largest value that this number of masters has reached.
fn most<T: Ord>(values: impl Iterator<Item = T>, needed: usize) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.into_iter().nth(needed.checked_sub(1)?)
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deferred: Vec<_> = self.voters.members.iter().map(|member| member.deferred()).collect();
        f.debug_struct("Quorum")
            .field("store", &self.store)
            .field("claims", &self.voters.ids.len())
            .field("deferred", &deferred)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_downgrade_that_a_minority_has_not_seen_is_shown() {
        let two_of_five = Mode::permits(2, 5).unwrap();
        let one_of_five = Mode::permits(1, 5).unwrap();
        for (old, new) in [(Mode::Exclusive, Mode::Shared), (two_of_five, one_of_five)] {
            for late in [[0, 1], [0, 4], [3, 4]] {
                let states: Vec<_> = (0..5)
                    .map(|at| {
                        let mode = if late.contains(&at) { old } else { new };
                        let token = FencingToken::new(7).ok();
                        let lease = Duration::from_secs(at);
                        let holder = ClaimState::new(ClaimId::from_bits(1), mode, token, lease);
                        LockState::new(vec![holder], Vec::new(), token)
                    })
                    .collect();
                let holders = merged(&states, 3).holders;
                assert_eq!(holders.len(), 1);
                assert_eq!(holders[0].mode, new, "late: {late:?}");
                assert_eq!(holders[0].remaining, Duration::from_secs(2));
            }
        }
    }
}
