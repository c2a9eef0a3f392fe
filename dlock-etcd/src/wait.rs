//! Waiting for a grant, and holding.
//!
//! No server grants anything: a claim holds the lock when no key that blocks it is left. A waiter
//! watches one such key, from now on: a watch from an earlier revision would be served with a delay
//! of up to 100 ms. So it reads once when the watch is set, and at each event, always including its
//! own key, which somebody may have deleted. A member reports a change before it shows it to reads.
//! So each read is repeated until its revision is at least that of the event. If the connection
//! breaks, the watch is set anew, at the next member, and again followed by a read. If every event
//! is lost, a read per TTL finds the change.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Clock, Error, Grant, Instant, Mode};
use futures_util::future::try_join_all;

use crate::{
    calls::{Pause, replaced},
    client::{Bytes, Failure, FilterType, KeyValue, RangeRequest, Seen, Watch},
    enter::own_key,
    error::{conflict, gone, no_tokens},
    key::token,
    link::vote,
    own::{OwnClaim, Spot, Stage},
    queue::{Behind, Standing, blockers, standing},
    session::{BRIEF, Session},
};

impl Session {
    /// Waits until a queued claim is granted.
    pub(crate) async fn wait(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant, Error> {
        let claim = self.find(request.claim).ok_or_else(gone)?;
        let _waiting = claim.wait();
        let Stage::There(spot) = claim.stage.lock().await.clone() else { return Err(gone()) };
        if claim.is_granted() {
            return self.hold(&claim, &spot, Clock::Boot.now(), false).await;
        }
        let standing = tokio::select! {
            () = claim.until_over() => return Err(gone()),
            standing = self.turn(&claim, &spot) => standing?,
        };
        match standing {
            Standing::Held { followed } => {
                self.hold(&claim, &spot, Clock::Boot.now(), followed).await
            }
            Standing::Conflict(kind, capacity) => Err(conflict(kind, capacity)),
            _ => {
                self.lose(&claim);
                Err(gone())
            }
        }
    }

    /// Waits until the claim does not wait any more.
    async fn turn(&self, claim: &OwnClaim, spot: &Spot) -> Result<Standing, Error> {
        let mut pause = Pause::new();
        let mut behind = match &spot.behind {
            Some(behind) => behind.clone(),
            None => match self.standing(claim, spot.created, self.seen()).await? {
                Standing::Behind(behind) => behind,
                standing => return Ok(standing),
            },
        };
        loop {
            let link = self.link().await?;
            let mut watch = watch(&link.client, claim, &behind);
            // A watch of the own key costs one request more, so not for short waits.
            let mut own: Option<Watch> = None;
            // The session may move to another member while this one seems to be well.
            let mut replaced = std::pin::pin!(replaced(self.link.subscribe(), link.number));
            let mut brief = std::pin::pin!(tokio::time::sleep(BRIEF));
            let next = loop {
                let seen = tokio::select! {
                    seen = watch.next() => seen,
                    seen = next(&mut own) => seen,
                    // The old member may be cut off from the others and still keep its watches.
                    () = replaced.as_mut() => break None,
                    () = brief.as_mut(), if own.is_none() => {
                        own = Some(link.client.watch(claim.key.clone(), Bytes::new(), Some(FilterType::NoPut)));
                        continue;
                    }
                    () = tokio::time::sleep(self.ttl) => Ok(Seen::Created { revision: 0 }),
                };
                let at_least = match seen {
                    // This member may be behind the one before.
                    Ok(Seen::Created { revision }) => revision.max(self.seen()),
                    Ok(Seen::Changed { revision }) => revision,
                    Err(failure) => {
                        tracing::debug!(target: "dlock", %failure, lock.name = %claim.name, "watch ended, will be set again");
                        pause.wait().await;
                        // A watch that is refused tells nothing, and the next one may be, too.
                        match self.standing(claim, spot.created, self.seen()).await? {
                            Standing::Behind(next) => break Some(next),
                            standing => return Ok(standing),
                        }
                    }
                };
                match self.standing(claim, spot.created, at_least).await? {
                    Standing::Behind(next) if next == behind => {}
                    Standing::Behind(next) => break Some(next),
                    standing => return Ok(standing),
                }
            };
            if let Some(next) = next {
                behind = next;
            }
        }
    }

    /// Returns the state of a claim that was created at this revision, no older than `at_least`.
    pub(crate) async fn standing(
        &self,
        claim: &OwnClaim,
        created: i64,
        at_least: i64,
    ) -> Result<Standing, Error> {
        // The semaphore is never closed.
        let _permit = self.polls.acquire().await;
        let mode = claim.mode();
        let mut reads = vec![blockers(&claim.prefix, mode, Some(created))];
        if mode == Mode::Shared {
            reads.push(own_key(claim));
        }
        let read = self.read(reads, at_least.max(created)).await?.1;
        // No two keys of a lock have the same create revision.
        match read.iter().any(|kv| kv.create_revision == created) {
            true => standing(&claim.prefix, mode, created, read),
            false => Ok(Standing::Gone),
        }
    }

    /// Reads keys from the connected member until it has applied `at_least`. Returns a revision that
    /// is no later than any of the reads.
    ///
    /// Not in one transaction: etcd 3.5.0 to 3.5.6 crashes if a client goes away during one without
    /// writes, and 3.5 refuses it when the quota is used up.
    pub(crate) async fn read(
        &self,
        reads: Vec<RangeRequest>,
        at_least: i64,
    ) -> Result<(i64, Vec<KeyValue>), Failure> {
        let began = Clock::Boot.now();
        let (mut tries, mut pause) = (0, Pause::new());
        loop {
            let asked = reads
                .iter()
                .map(|read| self.ask(RangeRequest { serializable: true, ..read.clone() }));
            match try_join_all(asked).await {
                Ok(found) if found.iter().all(|(header, _)| header.revision >= at_least) => {
                    let revision = found.iter().map(|(header, _)| header.revision).min();
                    let kvs = found.into_iter().flat_map(|(_, range)| range.kvs).collect();
                    return Ok((revision.unwrap_or(at_least), kvs));
                }
                // It is microseconds behind its own events, and longer behind other members.
                Ok(_) if tries < 3 => tries += 1,
                Err(failure) if !crate::calls::is_passing(&failure) || self.is_over() => {
                    return Err(failure);
                }
                Err(failure) if Clock::Boot.now().since(began) > self.patience() => {
                    return Err(failure);
                }
                _ => pause.wait().await,
            }
        }
    }

    /// Sends a vote, and returns its revision.
    pub(crate) async fn vote(&self) -> Result<i64, Failure> {
        Ok(self.insist(vote(&self.keys)).await.0?.0.revision)
    }

    /// Records that the claim holds the lock since `at`.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        spot: &Spot,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        let lease = claim.lease();
        // An answer proves nothing about the lease: this process may have been stopped.
        self.cover(lease).await?;
        let since = self.since(at, lease).ok_or_else(gone)?;
        let token = token(spot.created).ok_or_else(no_tokens)?;
        let (grant, first) = claim.grant(token, since).ok_or_else(gone)?;
        if first {
            self.granted(claim);
            // A later claim sees from the numbers that this one has its permits. A waiter behind it
            // watches only this key.
            if followed && matches!(claim.mode(), Mode::Permits { .. }) {
                self.wake_next(claim);
            }
        }
        Ok(grant)
    }

    /// Writes the key of a claim with permits again, which wakes the waiter behind it: that waiter
    /// is now the next in line. If this is lost, the waiter reads after a TTL.
    fn wake_next(self: &Arc<Self>, claim: &Arc<OwnClaim>) {
        let (session, claim) = (Arc::clone(self), Arc::clone(claim));
        self.background(async move {
            let mut stage = claim.stage.lock().await;
            if let Stage::There(spot) = &mut *stage
                && let Err(error) = session.write(&claim, spot, claim.mode()).await
            {
                tracing::debug!(target: "dlock", %error, lock.name = %claim.name, "the next waiter was not woken");
            }
        });
    }
}

fn watch(client: &crate::client::Client, claim: &OwnClaim, behind: &Behind) -> Watch {
    match behind {
        Behind::End(key) => client.watch(key.clone(), Bytes::new(), Some(FilterType::NoPut)),
        Behind::Change(key) => client.watch(key.clone(), Bytes::new(), None),
        Behind::Permits => {
            let range = ["p", "q"].map(|letter| format!("{}{letter}", claim.prefix).into());
            let [from, to]: [Bytes; 2] = range;
            client.watch(from, to, None)
        }
    }
}

/// Waits for the next message of a watch that may not be set.
async fn next(watch: &mut Option<Watch>) -> Result<Seen, Failure> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}
