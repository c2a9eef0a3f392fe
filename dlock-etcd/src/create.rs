//! Creating the keys of claims, and reading what is before them.
//!
//! The transaction creates the keys if the epoch has not ended and the keys are absent.
//!
//! With [`Queue::FailIfBusy`](dlock_core::Queue::FailIfBusy), the transaction also requires that no
//! key is in the way. If one is, the answer shows whether the claims fit nevertheless, such as a
//! reader behind readers. Then a second transaction creates the keys if nothing has changed since.

use std::sync::Arc;

use dlock_core::{Backoff, Certainty, Error};

use crate::{
    claim::{OwnClaim, Spot, own_key},
    client::{Compare, CompareResult, KeyValue, PutRequest, RequestOp, TxnRequest, TxnResponse},
    error::conflict,
    queue::{Standing, blockers, range, standing, standing_among, whole},
    record::Record,
    session::{Session, is_passing},
};

/// The outcome of a creation.
pub(crate) enum Made {
    /// All keys exist, and this is the state of each claim.
    There(Vec<(Spot, Result<Standing, Error>)>),
    /// A lock is not free, and no key exists.
    Busy,
}

impl Session {
    /// Creates the keys of all these claims or of none. After an error with the certainty `Unknown`,
    /// all keys may exist.
    pub(crate) async fn create(
        self: &Arc<Self>,
        claims: &[Arc<OwnClaim>],
        tries: bool,
    ) -> Result<Made, Error> {
        // A try has read, at this revision, that all claims fit.
        let mut fit_at = None;
        let mut pause = Backoff::new();
        loop {
            let epoch = match self.epoch().await {
                Ok(epoch) => epoch,
                // No creation was sent in this epoch.
                Err(failure) => {
                    return Err(Error::from(failure).with_certainty(Certainty::NotApplied));
                }
            };
            // Not before the epoch, whose marker has this lease or an earlier one.
            let lease = self.lease();
            claims.iter().for_each(|claim| claim.set_attached(lease));
            let creation = self.creation(claims, epoch, lease, tries, fit_at);
            let asked = match claims {
                [claim] => self.voted_in_batch(claim.prefix.as_bytes(), creation).await,
                _ => self.voted(creation).await,
            };
            let failure = match asked {
                Ok((header, answer)) if answer.succeeded => {
                    return Ok(Made::There(self.created(claims, header.revision, answer).await));
                }
                Ok((header, answer)) => {
                    let (fits, revision) = match fits(claims, answer)? {
                        Fit::Hidden => {
                            Box::pin(self.fits_among_all(claims, header.revision)).await?
                        }
                        fits => (fits, header.revision),
                    };
                    if fits == Fit::No {
                        return Ok(Made::Busy);
                    }
                    if fits == Fit::Yes && fit_at.replace(revision).is_none() {
                        continue;
                    }
                    if let Some(there) = self.outcome(claims, header.revision).await? {
                        return Ok(there);
                    }
                    Box::pin(self.check_epoch(epoch)).await?;
                    continue;
                }
                Err(failure) if self.is_outdated(&failure, lease) => continue,
                Err(failure) => failure,
            };
            if failure.certainty() == Certainty::Unknown {
                // If this fails, the session is over, and a key that is created ends with it.
                let ended = Box::pin(self.end_epoch(epoch)).await;
                let revision = ended
                    .map_err(|failure| Error::from(failure).with_certainty(Certainty::Unknown))?;
                if let Some(there) = self.outcome(claims, revision).await? {
                    return Ok(there);
                }
            }
            // No key exists, and none will.
            if !is_passing(&failure) || self.is_over() || claims.iter().any(|c| c.is_over()) {
                return Err(Error::from(failure).with_certainty(Certainty::NotApplied));
            }
            pause.wait().await;
        }
    }

    /// Returns whether the keys of the claims exist, no older than this revision. If that can't be
    /// read, they may exist: the certainty of the read is not that of the creation.
    async fn outcome(
        self: &Arc<Self>,
        claims: &[Arc<OwnClaim>],
        revision: i64,
    ) -> Result<Option<Made>, Error> {
        let found = Box::pin(self.search(claims, revision)).await;
        found.map_err(|error| error.with_certainty(Certainty::Unknown))
    }

    /// Reads whether the keys of the claims exist, no older than this revision.
    async fn search(
        self: &Arc<Self>,
        claims: &[Arc<OwnClaim>],
        revision: i64,
    ) -> Result<Option<Made>, Error> {
        let own = claims.iter().map(|claim| own_key(claim)).collect();
        let (revision, read) = self.read(own, revision).await?;
        let of = |claim: &Arc<OwnClaim>| read.iter().find(|kv| kv.key == claim.key).cloned();
        let own = claims.iter().map(of).collect();
        let Some(spots) = self.known(claims, own).await? else { return Ok(None) };
        Ok(Some(Made::There(self.standings(claims, spots, revision).await)))
    }

    /// Returns the state of claims that were created at this revision. After a try there are no
    /// reads, since nothing is in the way.
    async fn created(
        &self,
        claims: &[Arc<OwnClaim>],
        revision: i64,
        mut answer: TxnResponse,
    ) -> Vec<(Spot, Result<Standing, Error>)> {
        let mut made = Vec::with_capacity(claims.len());
        let mut reads = answer.ranges();
        for claim in claims {
            let ahead = reads.next().map(|range| range.kvs).unwrap_or_default();
            let standing = match standing(&claim.prefix, claim.mode(), revision, ahead) {
                Ok(None) => Box::pin(self.standing(claim, revision, revision)).await,
                Ok(Some(standing)) => Ok(standing),
                Err(error) => Err(error),
            };
            made.push((Spot { created: revision, modified: revision, behind: None }, standing));
        }
        made
    }

    /// Reads all keys below the prefixes of the locks, no older than `at_least`. Returns whether the
    /// claims of a try fit, and the revision at which they do.
    async fn fits_among_all(
        &self,
        claims: &[Arc<OwnClaim>],
        at_least: i64,
    ) -> Result<(Fit, i64), Error> {
        let mut first = i64::MAX;
        for claim in claims {
            let (revision, read) = self.read(vec![whole(&claim.prefix)], at_least).await?;
            if !is_held(&standing_among(&claim.prefix, claim.mode(), i64::MAX, read)?)? {
                return Ok((Fit::No, revision));
            }
            first = first.min(revision);
        }
        Ok((Fit::Yes, first))
    }

    /// Returns the transaction that creates the keys.
    fn creation(
        &self,
        claims: &[Arc<OwnClaim>],
        epoch: i64,
        lease: i64,
        tries: bool,
        fit_at: Option<i64>,
    ) -> TxnRequest {
        let mut compare = vec![self.in_epoch(epoch)];
        let (mut success, mut failure, mut looks) =
            (Vec::new(), Vec::new(), Vec::<RequestOp>::new());
        for claim in claims {
            let mode = claim.mode();
            compare.push(Compare::created(claim.key.clone(), CompareResult::Equal, 0));
            success.push(RequestOp::from(PutRequest {
                key: claim.key.clone(),
                value: claim.value(mode),
                lease,
            }));
            looks.push(blockers(&claim.prefix, mode, None).into());
            if tries {
                failure.push(own_key(claim).into());
                let (key, end) = range(&claim.prefix, mode);
                let unchanged = match fit_at {
                    None => Compare::created(key, CompareResult::Equal, 0),
                    Some(at) => Compare::modified(key, CompareResult::Less, at + 1),
                };
                compare.push(unchanged.up_to(end));
            }
        }
        match tries {
            true => failure.extend(looks),
            false => success.extend(looks),
        }
        TxnRequest { compare, success, failure }
    }

    /// Returns the keys of the claims if they exist. All exist or none; if not, somebody has deleted
    /// some of them, and the rest is deleted.
    async fn known(
        self: &Arc<Self>,
        claims: &[Arc<OwnClaim>],
        own: Vec<Option<KeyValue>>,
    ) -> Result<Option<Vec<Spot>>, Error> {
        let is_known = |(claim, kv): (&Arc<OwnClaim>, &Option<KeyValue>)| {
            let record = kv.as_ref().and_then(|kv| Record::parse(&kv.value));
            record.is_some_and(|record| record.claim == claim.claim())
        };
        if own.len() == claims.len() && claims.iter().zip(&own).all(is_known) {
            for (claim, kv) in claims.iter().zip(own.iter().flatten()) {
                claim.set_attached(kv.lease);
            }
            let spots = own.into_iter().flatten().map(|kv| Spot {
                created: kv.create_revision,
                modified: kv.mod_revision,
                behind: None,
            });
            return Ok(Some(spots.collect()));
        }
        // This also deletes the key of an earlier claim in the same slot, which should be gone. A
        // refusal does not keep the other keys.
        let mut refused = None;
        for (claim, kv) in claims.iter().zip(own).filter_map(|(claim, kv)| Some((claim, kv?))) {
            if let Err(error) = self.delete_created(&kv.key, kv.create_revision).await {
                claim.leave();
                self.clear_later(claim, &error);
                refused.get_or_insert(error);
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Returns the states of claims, no older than this revision.
    pub(crate) async fn standings(
        &self,
        claims: &[Arc<OwnClaim>],
        spots: Vec<Spot>,
        revision: i64,
    ) -> Vec<(Spot, Result<Standing, Error>)> {
        let mut made = Vec::with_capacity(spots.len());
        for (claim, spot) in claims.iter().zip(spots) {
            let standing = self.standing(claim, spot.created, revision).await;
            made.push((spot, standing));
        }
        made
    }
}

/// Whether claims of a try fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
    /// The answer does not show it, since it is limited and has keys of another root.
    Hidden,
    /// A key of a claim exists already, or the epoch has ended.
    Unknown,
}

/// Returns whether claims of a try fit, as far as the answer shows it.
fn fits(claims: &[Arc<OwnClaim>], mut answer: TxnResponse) -> Result<Fit, Error> {
    let mut read: Vec<_> = answer.ranges().map(|range| range.kvs).collect();
    if read.len() != claims.len() * 2 || read.drain(..claims.len()).any(|own| !own.is_empty()) {
        return Ok(Fit::Unknown);
    }
    for (claim, kvs) in claims.iter().zip(read) {
        match standing(&claim.prefix, claim.mode(), i64::MAX, kvs)? {
            None => return Ok(Fit::Hidden),
            Some(standing) if !is_held(&standing)? => return Ok(Fit::No),
            Some(_) => {}
        }
    }
    Ok(Fit::Yes)
}

fn is_held(standing: &Standing) -> Result<bool, Error> {
    match standing {
        Standing::Held { .. } => Ok(true),
        Standing::Conflict(kind, capacity) => Err(conflict(*kind, *capacity)),
        _ => Ok(false),
    }
}
