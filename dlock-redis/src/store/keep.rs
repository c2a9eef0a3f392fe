//! Leases that start anew.

use dlock_core::{Error, Instant, Renewal, Renewed};

use super::Store;
use crate::{
    keys::Keys,
    reply::{self, Standing, kept},
    scripts::{Kept, Known},
};

impl Store {
    /// Starts leases anew, and tells how each claim stands, and when it was asked. The names are of
    /// one batch.
    pub(crate) async fn keep(
        &self,
        claims: &[Kept<'_>],
        known: Known,
    ) -> Result<(Instant, Vec<Standing>), Error> {
        let call = self.session.scripts.keep(claims, known);
        let answer = self.session.run(&call).await?;
        let sent = call.sending().began();
        if let (Some(at), Some((_, name, ..))) = (reply::time_of(&answer), claims.first()) {
            self.clocks.observe(self.shard(name), at, sent);
        }
        let stand = kept(&answer, claims.len())?;
        if stand.iter().any(|standing| matches!(standing, Standing::Gone)) {
            self.check_master()?;
        }
        Ok((sent, stand))
    }

    /// Who does not know of a claim has to be the server that grants come from.
    pub(super) fn check_master(&self) -> Result<(), Error> {
        match &self.durable {
            Some(durable) => durable.check_same(&self.session.link),
            None => Ok(()),
        }
    }

    /// Starts the leases of exclusive holders anew; the places in the list of those that hold
    /// nothing so. The names are of one batch.
    pub(crate) async fn renew(&self, renewals: &[&Renewal]) -> Result<Vec<usize>, Error> {
        let Some(first) = renewals.first() else { return Ok(Vec::new()) };
        let keys: Vec<_> = renewals.iter().map(|renewal| Keys::of(&renewal.claim.name)).collect();
        let keys: Vec<_> =
            keys.iter().map(Keys::holder).chain(keys.iter().map(Keys::token)).collect();
        let retention = self.session.scripts.retention;
        let (at, sent, gone) = self.session.renew(&keys, renewals, retention).await?;
        self.clocks.observe(self.shard(&first.claim.name), at, sent);
        Ok(gone)
    }

    /// What has become of a claim that is not held: whether the server has lost what it knew of the
    /// name.
    pub(crate) async fn fate(&self, renewal: &Renewal) -> Renewed {
        // A shorter retention says nothing about a lease.
        let kept = u128::from(self.session.scripts.retention) > renewal.lease.as_millis();
        let Some(token) = renewal.token.filter(|_| kept) else { return Renewed::Lost };
        match self.session.inspect(&renewal.claim.name).await {
            Ok(state) if state.last_token.is_none_or(|last| last < token) => Renewed::Forgotten,
            // Who can't look can't tell, and it is lost in any case.
            _ => Renewed::Lost,
        }
    }
}
