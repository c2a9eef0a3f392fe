//! Renewal of held claims.
//!
//! The servers know no leases, only the session. So a renewal is a heartbeat, which proves that the
//! session and with it all nodes exist [for long enough](crate::proof), and then a new end of the
//! lease in this client. One heartbeat renews all claims. If its answer is lost, no lease is
//! extended, and the core retries.

use std::sync::Arc;

use dlock_core::{Clock, Error, Instant, Mode, Renewal, Renewed};
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::{
    claim::{OwnClaim, Spot, Stage},
    error::explain,
    node::{Node, child_since},
    queue::Standing,
    record::{Mark, Record},
    session::Session,
};

impl Session {
    /// Renews leases, with one heartbeat for all claims of the session.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        renewals: &[Renewal],
    ) -> Result<Vec<Renewed>, Error> {
        let called = Clock::Boot.now();
        let claims = self.find_all(renewals.iter().map(|renewal| renewal.claim.id));
        if claims.iter().all(Option::is_none) {
            return Ok(vec![Renewed::Lost; renewals.len()]);
        }
        // Before the claims are changed: without the answer nothing is known about the session. The
        // watch of a node notices its deletion, not this code.
        self.shared_heartbeat().await.map_err(explain)?;
        // The holder counts its lease from the call.
        let longest = renewals.iter().map(|renewal| renewal.lease).max().unwrap_or_default();
        let longest = longest.min(self.longest_lease());
        self.prove(called.saturating_add(longest)).await.map_err(explain)?;
        let (now, alone) = (Clock::Boot.now(), renewals.len() == 1);
        let mut answers = Vec::with_capacity(renewals.len());
        for (renewal, claim) in renewals.iter().zip(&claims) {
            answers.push(match claim {
                Some(claim) => self.renew_one(claim, renewal, now, alone).await?,
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
        now: Instant,
        alone: bool,
    ) -> Result<Renewed, Error> {
        let until = now.saturating_add(renewal.lease);
        let mut held = self.extend(claim, renewal, until);
        if held.is_none() {
            match self.find_out(claim).await? {
                Renewed::Kept => held = self.extend(claim, renewal, until),
                other => return Ok(other),
            }
        }
        let Some(mode) = held else { return Ok(Renewed::Lost) };
        if mode == renewal.mode {
            return Ok(Renewed::Kept);
        }
        if alone {
            self.weaken(claim, renewal).await?;
            return Ok(if claim.is_over() { Renewed::Lost } else { Renewed::Kept });
        }
        // In the background, so that one downgrade does not delay the renewals of the others. If it
        // fails, the next renewal tries again.
        let (session, claim) = (Arc::clone(self), Arc::clone(claim));
        let renewal = renewal.clone();
        self.background(async move {
            if let Err(error) = session.weaken(&claim, &renewal).await {
                tracing::warn!(target: "dlock", %error, lock.name = %claim.name(), "downgrade failed");
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
        match self.standing(&spot, None).await.map_err(explain)? {
            Standing::Held { followed } => {
                self.hold(claim, &spot, self.beat(), followed).map(|_| Renewed::Kept)
            }
            // Not an error, with which the other renewals would fail.
            Standing::Unread(_) => Ok(Renewed::Unknown),
            _ => Ok(Renewed::Lost),
        }
    }

    /// Changes a held claim to a weaker mode, unless it has that already.
    async fn weaken(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        renewal: &Renewal,
    ) -> Result<(), Error> {
        if claim.mode() == renewal.mode {
            return Ok(());
        }
        let (session, claim) = (Arc::clone(self), Arc::clone(claim));
        let record = Record::of(renewal.lease, claim.note.clone());
        let mode = renewal.mode;
        // It runs to its end. Otherwise the name of the node could be lost.
        self.see_through(async move {
            let mut stage = claim.stage.lock().await;
            let Stage::There(spot) = &mut *stage else { return Ok(()) };
            let is_weaker =
                mode.capacity() == spot.mode.capacity() && mode.weight() < spot.mode.weight();
            if is_weaker {
                match session.become_weaker(spot, claim.claim(), mode, record).await {
                    Ok(()) => claim.weakened(mode),
                    Err(ZkError::NoNode) => session.lose(&claim),
                    Err(error) => return Err(explain(error)),
                }
            }
            Ok(())
        })
        .await
    }

    async fn become_weaker(
        &self,
        spot: &mut Spot,
        claim: dlock_core::ClaimId,
        mode: Mode,
        record: Record,
    ) -> Result<(), ZkError> {
        let client = &self.client;
        let path = spot.path();
        if spot.mode == Mode::Exclusive {
            // A mark, not a new node: writers behind it still wait for this node, and readers that
            // watch it are woken.
            let data = record.marked(Mark::Shared).text();
            self.insist(|| client.set_data(&path, data.as_bytes(), None)).await.0?;
        } else if let Some(node) = Node::parse(&*spot.child) {
            // A new name at the same place in the queue, since the weights are read from the names.
            // Both steps are one transaction, so the claim always has exactly one node.
            let digits = spot.child.rsplit_once("lock-").map_or("", |(_, digits)| digits);
            let child = child_since(claim, mode, Some(node.since.unwrap_or(spot.czxid))) + digits;
            let new = format!("{}/{child}", spot.dir);
            let data = record.marked(Mark::Granted).text();
            let ephemeral = CreateMode::Ephemeral.with_acls(self.acl.for_driver());
            let rename = || async {
                let mut both = client.new_multi_writer();
                both.add_create(&new, data.as_bytes(), &ephemeral)?;
                both.add_delete(&path, None)?;
                both.commit().await.map_err(ZkError::from)
            };
            match self.insist(rename).await {
                (Ok(_), _) | (Err(ZkError::NodeExists), true) => spot.child = child,
                (Err(error), unsure) => {
                    // An earlier sending may have renamed it.
                    spot.is_renamed |= unsure;
                    if !unsure || !self.has_node(&new).await? {
                        return Err(error);
                    }
                    spot.child = child;
                }
            }
        }
        spot.mode = mode;
        Ok(())
    }
}
