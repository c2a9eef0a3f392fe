//! Renewal of leases and of places in the queue.
//!
//! If the answer is lost, the same claims are renewed again. If a lease was renewed and the client
//! does not know, the lease lasts longer on the server than the holder relies on it, which is safe.

use dlock_core::{Error, Instant, Renewal, Renewed};

use crate::store::Store;
use crate::{
    keys::Keys,
    reply::{self, ClaimStatus, renewed},
    scripts::{Phase, Renewing},
};

impl Store {
    /// Restarts leases. Returns the time of the request, and the standing of each claim. The names
    /// are of one batch.
    pub(crate) async fn renew(
        &self,
        claims: &[Renewing<'_>],
        phase: Phase,
    ) -> Result<(Instant, Vec<ClaimStatus>), Error> {
        let call = self.session.scripts.renew(claims, phase);
        let answer = self.session.run(&call).await?;
        let sent = call.sending().began();
        if let (Some(at), Some((_, name, ..))) = (reply::time_of(&answer), claims.first()) {
            self.clocks.observe(self.shard(name), at, sent);
        }
        let stand = renewed(&answer, claims.len())?;
        if stand.iter().any(|status| matches!(status, ClaimStatus::NotFound)) {
            self.check_master()?;
        }
        Ok((sent, stand))
    }

    /// Checks that the server that does not know a claim is the server that writes grants. During a
    /// failover the two links may lead to different servers.
    pub(super) fn check_master(&self) -> Result<(), Error> {
        match &self.durable {
            Some(durable) => durable.check_same(&self.session.link),
            None => Ok(()),
        }
    }

    /// Restarts the leases of exclusive holders. Returns the indices of the claims that do not hold
    /// their locks exclusively. The names are of one batch.
    pub(crate) async fn renew_exclusive(&self, renewals: &[&Renewal]) -> Result<Vec<usize>, Error> {
        let Some(first) = renewals.first() else { return Ok(Vec::new()) };
        let keys: Vec<_> = renewals.iter().map(|renewal| Keys::of(&renewal.claim.name)).collect();
        let keys: Vec<_> =
            keys.iter().map(Keys::holder).chain(keys.iter().map(Keys::last_token)).collect();
        let retention = self.session.scripts.retention;
        let (at, sent, gone) = self.session.renew_exclusive(&keys, renewals, retention).await?;
        self.clocks.observe(self.shard(&first.claim.name), at, sent);
        Ok(gone)
    }

    /// Checks why a claim is not held: whether the server has lost its data about the name.
    pub(crate) async fn loss_reason(&self, renewal: &Renewal) -> Renewed {
        // If the retention is shorter, it proves nothing about a lease.
        let kept = u128::from(self.session.scripts.retention) > renewal.lease.as_millis();
        let Some(token) = renewal.token.filter(|_| kept) else { return Renewed::Lost };
        match self.session.inspect(&renewal.claim.name).await {
            Ok(state) if state.last_token.is_none_or(|last| last < token) => Renewed::Forgotten,
            // The reason is unknown. The claim is lost in any case.
            _ => Renewed::Lost,
        }
    }
}
