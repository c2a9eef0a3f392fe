//! Waiting for a grant.
//!
//! No server grants anything: a claim holds the lock when no key that blocks it is left. A waiter
//! watches one such key, from now on: a watch from an earlier revision would be served with a delay
//! of up to 100 ms. So it reads once when the watch is set, and at each event, always including its
//! own key, which somebody may have deleted. A member reports a change before it shows it to reads.
//! So each read is repeated until its revision is at least that of the event.
//!
//! A waiter for a mutex with a single key ahead watches its own key as well. A member sends the
//! events of one stream in the order of their revisions. So if the key ahead ends, and the own watch
//! has reported nothing, the claim holds the lock without a further read, and its own watch becomes
//! the [watch of the holder](crate::own_watch). If etcd holds events back because the stream is full,
//! that watch reports the loss instead.
//!
//! Names of keys are used again, and another member may be far behind. It may send the deletion of an
//! earlier key of the same name, and its reads may show a state before the claim was created. Neither
//! counts: a watch drops each change up to the create revision of its claim, and a read is repeated
//! until it shows at least that revision. After the create revision, one deletion of a key that was
//! ahead is enough: if a key of the same name is created later, it is behind the claim.
//!
//! If the connection breaks, the watch is set again, at the next member, and again followed by a
//! read. If every event is lost, a read per TTL finds the change.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Backoff, Clock, Error, Grant};

use crate::{
    claim::{OwnClaim, OwnWatch, Spot, Stage},
    client::{Bytes, Failure, FilterType, Seen, Watch},
    error::{conflict, gone},
    key::Entry,
    queue::{Behind, Standing},
    session::{Session, replaced},
};

impl Session {
    /// Waits until a queued claim is granted.
    pub(crate) async fn wait(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant, Error> {
        let claim = self.find(request.claim).ok_or_else(gone)?;
        let _waiting = claim.wait();
        let Stage::There(spot) = claim.stage.lock().await.clone() else { return Err(gone()) };
        if claim.is_granted() {
            return self.hold(&claim, spot.created, Clock::Boot.now(), false).await;
        }
        let (standing, own) = tokio::select! {
            () = claim.until_over() => return Err(gone()),
            turn = self.turn(&claim, &spot) => turn?,
        };
        match standing {
            Standing::Held { followed } => {
                if let Some(own) = own {
                    claim.keep_watch(own);
                }
                self.hold(&claim, spot.created, Clock::Boot.now(), followed).await
            }
            Standing::Conflict(kind, capacity) => Err(conflict(kind, capacity)),
            _ => {
                self.lose(&claim);
                Err(gone())
            }
        }
    }

    /// Waits until the claim does not wait any more. Returns its state, and the watch of its own key
    /// if there is one.
    async fn turn(
        &self,
        claim: &OwnClaim,
        spot: &Spot,
    ) -> Result<(Standing, Option<OwnWatch>), Error> {
        let mut pause = Backoff::new();
        let mut behind = match &spot.behind {
            Some(behind) => behind.clone(),
            None => match self.standing(claim, spot.created, self.seen()).await? {
                Standing::Behind(behind) => behind,
                standing => return Ok((standing, None)),
            },
        };
        loop {
            let link = self.link().await?;
            let mut watch = watch(&link.client, claim, &behind, spot.created);
            let is_next = self.is_next(claim, &behind);
            // It costs two messages, so not for short waits further back.
            let mut own = is_next.then(|| claim.watch_own(&link, spot.created));
            let mut unset = 1 + u32::from(is_next);
            let mut created = 0;
            // The session may move to another member while this one seems to be well.
            let mut replaced = std::pin::pin!(replaced(self.link.subscribe(), link.number));
            let mut long = std::pin::pin!(tokio::time::sleep(self.response_timeout()));
            let next = loop {
                let seen = tokio::select! {
                    // First what has happened to the own key.
                    biased;
                    seen = next(&mut own) => match seen {
                        Ok(Seen::Changed { .. }) => return Ok((Standing::Gone, None)),
                        seen => seen,
                    },
                    seen = watch.next() => match seen {
                        // Both were there when both watches were set.
                        Ok(Seen::Changed { .. }) if is_next && unset == 0 => {
                            return Ok((Standing::Held { followed: false }, own));
                        }
                        seen => seen,
                    },
                    // The old member may be cut off from the others and still keep its watches.
                    () = replaced.as_mut() => break None,
                    () = long.as_mut(), if own.is_none() => {
                        own = Some(claim.watch_own(&link, spot.created));
                        unset += 1;
                        continue;
                    }
                    () = tokio::time::sleep(self.ttl) => Ok(Seen::Changed { revision: self.seen() }),
                };
                let at_least = match seen {
                    Ok(Seen::Created { revision }) => {
                        created = revision.max(created);
                        unset = unset.saturating_sub(1);
                        if unset > 0 {
                            continue;
                        }
                        // This member may be behind the one before.
                        created.max(self.seen())
                    }
                    Ok(Seen::Changed { revision }) => revision,
                    Err(failure) => {
                        tracing::debug!(target: "dlock", %failure, lock.name = %claim.name(), "watch ended, will be set again");
                        pause.wait().await;
                        // A watch that is refused tells nothing, and the next one may be, too.
                        match self.standing(claim, spot.created, self.seen()).await? {
                            Standing::Behind(next) => break Some(next),
                            standing => return Ok((standing, None)),
                        }
                    }
                };
                match self.standing(claim, spot.created, at_least).await? {
                    Standing::Behind(next) if next == behind => {}
                    Standing::Behind(next) => break Some(next),
                    standing => return Ok((standing, None)),
                }
            };
            if let Some(next) = next {
                behind = next;
            }
        }
    }

    /// Returns whether the end of what it waits for is the grant. Not if that belongs to the same
    /// session: both keys may end at one revision, with the lease.
    fn is_next(&self, claim: &OwnClaim, behind: &Behind) -> bool {
        let Behind::Last(key) = behind else { return false };
        let rest = key.strip_prefix(claim.prefix.as_bytes());
        !matches!(rest.map(Entry::of), Some(Entry::Ours(_, slot)) if slot.is_of(self.id))
    }
}

/// Watches what a claim waits for that was created at this revision. Older changes are not of the
/// keys that it waits for: they may have had the same names.
fn watch(client: &crate::client::Client, claim: &OwnClaim, behind: &Behind, created: i64) -> Watch {
    match behind {
        Behind::Last(key) | Behind::End(key) => {
            client.watch(key.clone(), Bytes::new(), Some(FilterType::NoPut), created)
        }
        Behind::Change(key) => client.watch(key.clone(), Bytes::new(), None, created),
        Behind::Permits => {
            let range = ["p", "q"].map(|letter| format!("{}{letter}", claim.prefix).into());
            let [from, to]: [Bytes; 2] = range;
            client.watch(from, to, None, created)
        }
    }
}

/// Waits for the next message of a watch that may not be set.
async fn next(own: &mut Option<OwnWatch>) -> Result<Seen, Failure> {
    match own {
        Some(own) => own.watch.next().await,
        None => std::future::pending().await,
    }
}
