//! Leases that start anew.

use std::time::Duration;

use dlock_core::{ClaimId, Error, Instant, LockName, Renewal, Renewed};

use super::Store;
use crate::{
    error::unreadable,
    keys::Keys,
    reply::{self, Standing, kept, millis},
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
    pub(crate) async fn renew(
        &self,
        claims: &[(ClaimId, &LockName, Duration)],
    ) -> Result<Vec<usize>, Error> {
        let Some((_, first, _)) = claims.first() else { return Ok(Vec::new()) };
        let mut call = self.session.scripts.renew.on(2 * claims.len());
        let keys: Vec<_> = claims.iter().map(|(_, name, _)| Keys::of(name)).collect();
        for keys in &keys {
            call = call.arg(keys.holder());
        }
        for keys in &keys {
            call = call.arg(keys.token());
        }
        for (claim, _, lease) in claims {
            call = call.arg(claim.to_string()).arg(millis(*lease));
        }
        let call = call.arg(self.session.scripts.retention);
        let answer = self.session.run(&call).await?;
        let (at, gone) = reply::renewal(&answer).ok_or_else(|| unreadable("a renewal", &answer))?;
        self.clocks.observe(self.shard(first), at, call.sending().began());
        Ok(gone)
    }

    /// What has become of a claim that is not held: whether the server has lost what it knew of the
    /// name.
    pub(crate) async fn fate(&self, renewal: &Renewal) -> Renewed {
        // A shorter retention says nothing about a lease.
        let kept = u128::from(self.session.scripts.retention) > renewal.lease.as_millis();
        let Some(token) = renewal.token.filter(|_| kept) else { return Renewed::Lost };
        match self.inspect(&renewal.claim.name).await {
            Ok(state) if state.last_token.is_none_or(|last| last < token) => Renewed::Forgotten,
            // Who can't look can't tell, and it is lost in any case.
            _ => Renewed::Lost,
        }
    }
}
