//! Renewal of leases and of positions in the queue.
//!
//! If the answer is lost, the same claims are renewed again. If a lease was renewed and the client
//! does not know, the lease lasts longer on the server than the holder relies on it, which is safe.

use dlock_core::{Error, FencingToken, Instant, Mode, Renewal, Renewed};
use futures_util::future::{join_all, try_join_all};
use redis::Value;

use crate::{
    durable::won,
    error::unreadable,
    keys::Keys,
    reply::{self, ClaimStatus, lease_argument, renewed},
    scripts::{Call, KnownGrant, Phase, Renewing},
    store::Store,
};

/// The number of exclusive holders that one command renews.
const EXCLUSIVE_BATCH: usize = 500;
/// The number of other holders, or of waiters, that one command renews.
pub(crate) const BATCH: usize = 100;

impl Store {
    /// Renews all these claims.
    pub(crate) async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let mut answers = vec![Renewed::Lost; renewals.len()];
        // Three steps, each for the claims that the previous step did not find: RENEW_EXCLUSIVE for
        // exclusive holders, which reads one key; RENEW for all others; then a read of the last
        // token, which shows whether the claim was revoked or the server has lost its data. One of
        // the first two steps renews a claim, so a failure between them loses no answer: the core
        // sends the whole batch again.
        let (alone, mut others): (Vec<_>, Vec<_>) =
            renewals.iter().enumerate().partition(|(_, renewal)| renewal.mode == Mode::Exclusive);
        let batches = self.batches(alone, |(_, renewal)| &renewal.claim.name, EXCLUSIVE_BATCH);
        let renewed = batches.iter().map(async |batch| {
            let renewals: Vec<_> = batch.iter().map(|(_, renewal)| *renewal).collect();
            Ok::<_, Error>((batch, self.renew_exclusive(&renewals).await?))
        });
        for (batch, gone) in try_join_all(renewed).await? {
            for (index, (at, renewal)) in batch.iter().enumerate() {
                if gone.contains(&index) {
                    // It may hold the lock in a weaker mode by now, or by another grant: RENEW knows
                    // all modes, and returns the token.
                    others.push((*at, *renewal));
                } else {
                    answers[*at] = Renewed::Kept;
                }
            }
        }
        for renewal in renewals.iter().filter(|renewal| renewal.mode != Mode::Exclusive) {
            self.contention.is_shared(renewal.claim.id);
        }
        let batches = self.batches(others, |(_, r)| &r.claim.name, BATCH);
        let others = batches.iter().map(async |batch| {
            let claims: Vec<_> = batch
                .iter()
                .map(|(_, r)| Renewing {
                    claim: r.claim.id,
                    name: &r.claim.name,
                    mode: r.mode,
                    lease: lease_argument(r.lease, r.is_last),
                    grant: match self.taken(r) {
                        Some(token) => KnownGrant::Taken(token),
                        None if r.token.is_some() => KnownGrant::Other,
                        None => KnownGrant::Unknown,
                    },
                })
                .collect();
            Ok::<_, Error>((batch, self.renew(&claims, Phase::Holds).await?.1))
        });
        let mut gone = Vec::new();
        for (batch, statuses) in try_join_all(others).await? {
            for ((at, renewal), status) in batch.iter().zip(statuses) {
                match status {
                    // The server has lost the grant, but not the place in the queue, and the claim
                    // was granted anew, perhaps by this script. Others may have held the lock in
                    // between.
                    ClaimStatus::Held(token) if renewal.token.is_some_and(|own| own != token) => {
                        self.check_master()?;
                        answers[*at] = Renewed::Forgotten;
                    }
                    ClaimStatus::Held(_) => answers[*at] = Renewed::Kept,
                    // The answer does not say that the lock is lost.
                    ClaimStatus::Unreadable(_) => answers[*at] = Renewed::Unknown,
                    _ => gone.push((*at, *renewal)),
                }
            }
        }
        let reasons = gone.iter().map(async |(at, renewal)| (*at, self.loss_reason(renewal).await));
        for (at, reason) in join_all(reasons).await {
            answers[at] = reason;
        }
        for (renewal, answer) in renewals.iter().zip(&answers) {
            if renewal.is_last && *answer != Renewed::Unknown {
                self.contention.forget(renewal.claim.id);
            }
        }
        Ok(answers)
    }

    /// Restarts leases. Returns the time of the request, and the status of each claim. The names
    /// are of one batch.
    pub(crate) async fn renew(
        &self,
        claims: &[Renewing<'_>],
        phase: Phase,
    ) -> Result<(Instant, Vec<ClaimStatus>), Error> {
        let call = self.session.scripts.renew(claims, phase);
        let answer = match phase {
            Phase::Holds => self.run_durably(&call, won).await?,
            Phase::Waits => self.session.run(&call).await?,
        };
        let sent = call.sending().began();
        if let (Some(at), Some(Renewing { name, .. })) = (reply::time_of(&answer), claims.first()) {
            self.clocks.observe(self.shard(name), at, sent);
        }
        let statuses = renewed(&answer, claims.len())?;
        if statuses.iter().any(|status| matches!(status, ClaimStatus::NotFound)) {
            self.check_master()?;
        }
        Ok((sent, statuses))
    }

    /// Returns the token of a grant by plain commands, if the renewal is for this grant.
    fn taken(&self, renewal: &Renewal) -> Option<FencingToken> {
        let taken = self.contention.taken(renewal.claim.id)?;
        renewal.token.is_none_or(|token| token == taken).then_some(taken)
    }

    /// Checks that the server that does not know a claim, or knows another grant, is the server that
    /// writes grants. During a failover the two links may lead to different servers.
    pub(crate) fn check_master(&self) -> Result<(), Error> {
        match &self.durable {
            Some(durable) => durable.check_same(&self.session.link),
            None => Ok(()),
        }
    }

    /// Restarts the leases of exclusive holders. Returns the indices of the claims that do not hold
    /// their locks exclusively, by the grant of the renewal. The names are of one batch.
    pub(crate) async fn renew_exclusive(&self, renewals: &[&Renewal]) -> Result<Vec<usize>, Error> {
        let Some(first) = renewals.first() else { return Ok(Vec::new()) };
        let keys: Vec<_> = renewals.iter().map(|renewal| Keys::of(&renewal.claim.name)).collect();
        let keys: Vec<_> = keys.iter().map(Keys::holder).collect();
        let renewing: Vec<_> =
            renewals.iter().map(|renewal| (*renewal, self.taken(renewal))).collect();
        let call = self.session.scripts.renew_exclusive(&keys, &renewing);
        let renews = |answer: &Value| {
            renewed_exclusive(answer).is_ok_and(|(_, gone)| gone.len() < renewals.len())
        };
        let answer = self.run_durably(&call, renews).await?;
        let (at, gone) = renewed_exclusive(&answer)?;
        self.clocks.observe(self.shard(&first.claim.name), at, call.sending().began());
        Ok(gone)
    }

    /// Runs a script that grants or renews leases, and waits for replicas if they must have them.
    /// Renewals wait as grants do: otherwise a replica that takes over would end the lease earlier
    /// than the holder believes. `has_lease` says whether an answer grants or renews a lease.
    pub(crate) async fn run_durably(
        &self,
        call: &Call<'_>,
        has_lease: impl Fn(&Value) -> bool,
    ) -> Result<Value, Error> {
        match &self.durable {
            None => self.session.run(call).await,
            Some(durable) => durable.run(call, has_lease).await,
        }
    }

    /// Returns why a claim is not held: whether the server has lost its data about the name.
    pub(crate) async fn loss_reason(&self, renewal: &Renewal) -> Renewed {
        let Some(token) = renewal.token else { return Renewed::Lost };
        match self.session.inspect(&renewal.claim.name).await {
            Ok(state) if state.last_token.is_none_or(|last| last < token) => Renewed::Forgotten,
            // The reason is unknown. The claim is lost in any case.
            _ => Renewed::Lost,
        }
    }
}

/// Reads the answer to RENEW_EXCLUSIVE: the server's clock, in microseconds, and the indices of the
/// claims that do not hold their locks exclusively, by the grant of the renewal.
pub(crate) fn renewed_exclusive(answer: &Value) -> Result<(u64, Vec<usize>), Error> {
    reply::renewed_exclusive(answer).ok_or_else(|| unreadable("a renewal", answer))
}
