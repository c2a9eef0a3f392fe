//! Renewal of held claims.
//!
//! The servers know one lease, that of the session. So a renewal is a new end of the lease in this
//! client, which a beat has to cover. One heartbeat renews all claims, and most renewals need none.
//! A downgrade writes the key again: it keeps its place, and wakes the clients that watch it.

use std::sync::Arc;

use dlock_core::{Clock, Error, Mode, Renewal, Renewed};

use crate::{
    claim::{OwnClaim, Spot, Stage, own_key},
    client::{Compare, CompareResult, PutRequest, TxnRequest},
    error::gone,
    queue::Standing,
    session::Session,
};

impl Session {
    /// Renews leases, with at most one heartbeat for all claims of the session.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        renewals: &[Renewal],
    ) -> Result<Vec<Renewed>, Error> {
        let claims = self.find_all(renewals.iter().map(|renewal| renewal.claim.id));
        if claims.iter().any(Option::is_some) {
            let lease = renewals.iter().map(|renewal| renewal.lease).max().unwrap_or_default();
            self.prove_lease(lease).await?;
            self.is_alive();
        }
        let stale = claims.iter().flatten().filter(|claim| self.is_stale(claim));
        let stale: Vec<_> = stale.cloned().collect();
        if !stale.is_empty() {
            // Those that take longer are answered with `Unknown`.
            let _ = tokio::time::timeout(self.heartbeat_interval(), self.attach_all(stale)).await;
        }
        let alone = renewals.len() == 1;
        let mut answers = Vec::with_capacity(renewals.len());
        for (renewal, claim) in renewals.iter().zip(&claims) {
            answers.push(match claim {
                Some(claim) => self.renew_one(claim, renewal, alone).await?,
                None => Renewed::Lost,
            });
        }
        Ok(answers)
    }

    /// Renews the lease of a claim if it holds the lock, even if its grant was not noticed yet.
    async fn renew_one(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        renewal: &Renewal,
        alone: bool,
    ) -> Result<Renewed, Error> {
        let until = Clock::Boot.now().saturating_add(renewal.lease);
        let mut held = self.extend(claim, renewal, until);
        if held.is_none() {
            match self.find_out(claim).await {
                Ok(Renewed::Kept) => held = self.extend(claim, renewal, until),
                Ok(other) => return Ok(other),
                Err(error) if alone => return Err(error),
                // Not an error, with which the other renewals would fail.
                Err(_) => return Ok(Renewed::Unknown),
            }
        }
        let Some(mode) = held else { return Ok(Renewed::Lost) };
        // After the beat was read: see `lease`.
        if !self.is_attached(claim) {
            return Ok(Renewed::Unknown);
        }
        let is_weaker =
            renewal.mode.capacity() == mode.capacity() && renewal.mode.weight() < mode.weight();
        if !is_weaker {
            return Ok(Renewed::Kept);
        }
        let (session, claim) = (Arc::clone(self), Arc::clone(claim));
        let (mode, name) = (renewal.mode, claim.name().clone());
        let weaken = async move {
            let mut stage = claim.stage.lock().await;
            let Stage::There(spot) = &mut *stage else { return Ok(Renewed::Lost) };
            session.write(&claim, spot, mode).await?;
            Ok(if claim.is_over() { Renewed::Lost } else { Renewed::Kept })
        };
        if alone {
            return self.see_through_in(&self.releases, None, weaken).await;
        }
        // In the background, so that one downgrade does not delay the renewals of the others. If it
        // fails, the next renewal tries again.
        self.background(async move {
            if let Err(error) = weaken.await {
                tracing::warn!(target: "dlock", %error, lock.name = %name, "downgrade failed");
            }
        });
        Ok(Renewed::Kept)
    }

    /// Reads whether a claim that this client considers a waiter holds the lock.
    async fn find_out(self: &Arc<Self>, claim: &Arc<OwnClaim>) -> Result<Renewed, Error> {
        if claim.is_over() {
            return Ok(Renewed::Lost);
        }
        let Stage::There(spot) = claim.stage.lock().await.clone() else {
            return Ok(Renewed::Lost);
        };
        let began = Clock::Boot.now();
        let revision = self.vote().await?;
        match self.standing(claim, spot.created, revision).await? {
            Standing::Held { followed } => {
                self.hold(claim, spot.created, began, followed).await.map(|_| Renewed::Kept)
            }
            _ => Ok(Renewed::Lost),
        }
    }

    /// Writes the key of a claim with the current lease, in this mode or a weaker one that it has. It
    /// requires the revision of its last change, so that a late write does not undo a later one.
    pub(crate) async fn write(
        &self,
        claim: &Arc<OwnClaim>,
        spot: &mut Spot,
        mode: Mode,
    ) -> Result<(), Error> {
        loop {
            let (key, lease) = (claim.key.clone(), self.lease());
            let put = PutRequest { key: key.clone(), value: claim.value(mode), lease };
            let txn = TxnRequest {
                compare: vec![Compare::modified(key, CompareResult::Equal, spot.modified)],
                success: vec![put.into()],
                failure: vec![own_key(claim).into()],
            };
            // No other change of this key is under way, so it may go together with others.
            let write = || self.voted_in_batch(&claim.key, txn.clone());
            let (header, mut answer) = match self.insist_by(write).await.0 {
                Err(failure) if self.is_outdated(&failure, lease) => continue,
                answer => answer?,
            };
            if answer.succeeded {
                spot.modified = header.revision;
                claim.set_attached(lease);
                claim.weakened(mode);
                return Ok(());
            }
            let own = answer.ranges().flat_map(|range| range.kvs).next();
            match own.filter(|own| own.create_revision == spot.created) {
                // An earlier write was applied, perhaps an earlier sending of this one.
                Some(own) => spot.modified = own.mod_revision,
                None => {
                    self.lose(claim);
                    return Err(gone());
                }
            }
        }
    }
}
