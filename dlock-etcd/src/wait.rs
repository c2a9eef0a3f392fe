//! Waiting for a grant, and holding.
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
//! its [`guard`](crate::guard). If etcd holds events back because the stream is full, that guard
//! reports the loss instead.
//!
//! Names of keys are used again, and another member may be far behind. It may send the deletion of an
//! earlier key of the same name, and its reads may show a state before the claim was created. Neither
//! counts: a watch drops each change up to the create revision of its claim, and a read is repeated
//! until it shows at least that revision. After the create revision, one deletion of a key that was
//! ahead is enough: if a key of the same name is created later, it is behind the claim.
//!
//! If the connection breaks, the watch is set anew, at the next member, and again followed by a read.
//! If every event is lost, a read per TTL finds the change.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Certainty, Clock, Error, Grant, Instant, Mode, session::Pause};
use futures_util::future::try_join_all;

use crate::{
    calls::{is_passing, replaced},
    client::{Bytes, Failure, FailureKind, FilterType, KeyValue, RangeRequest, Seen, Watch},
    enter::own_key,
    error::{conflict, for_now, gone, no_tokens},
    key::{Entry, token},
    link::vote,
    own::{OwnClaim, OwnWatch, Spot, Stage},
    queue::{Behind, Standing, blockers, standing, standing_among, whole},
    session::Session,
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
            turn = self.turn(&claim, &spot) => turn.map_err(for_now)?,
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
        let mut pause = Pause::new();
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
            let mut long = std::pin::pin!(tokio::time::sleep(self.patience()));
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
        !matches!(rest.map(Entry::of), Some(Entry::Ours(_, place)) if place.is_of(self.id))
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
        if !read.iter().any(|kv| kv.create_revision == created) {
            return Ok(Standing::Gone);
        }
        match standing(&claim.prefix, mode, created, read)? {
            Some(standing) => Ok(standing),
            None => Box::pin(self.standing_among_all(claim, created, at_least.max(created))).await,
        }
    }

    /// Like [`standing`](Self::standing), from all keys below the lock's prefix. Those of another root
    /// within this one may be among them.
    async fn standing_among_all(
        &self,
        claim: &OwnClaim,
        created: i64,
        at_least: i64,
    ) -> Result<Standing, Error> {
        let (_, read) = self.read(vec![whole(&claim.prefix)], at_least).await?;
        match read.iter().any(|kv| kv.create_revision == created) {
            true => standing_among(&claim.prefix, claim.mode(), created, read),
            false => Ok(Standing::Gone),
        }
    }

    /// Reads keys from the connected member until it has applied `at_least`, for as long as a caller
    /// waits. Returns a revision that is no later than any of the reads.
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
                answer => {
                    let failure = answer.err().unwrap_or_else(behind_others);
                    let is_late = Clock::Boot.now().since(began) > self.patience();
                    if is_late || self.is_over() || !is_passing(&failure) {
                        return Err(failure);
                    }
                    pause.wait().await;
                }
            }
        }
    }

    /// Sends a vote, and returns its revision.
    pub(crate) async fn vote(&self) -> Result<i64, Failure> {
        Ok(self.insist(vote(&self.keys)).await.0?.0.revision)
    }

    /// Records that a claim, which was created at this revision, holds the lock since `at`.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        created: i64,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        loop {
            self.attach(claim).await?;
            if let Some(grant) = self.hold_attached(claim, created, at, followed).await? {
                return Ok(grant);
            }
        }
    }

    /// Like [`hold`](Self::hold), for a task that holds the claim's stage.
    pub(crate) async fn hold_at(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        spot: &mut Spot,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        loop {
            self.attach_at(claim, spot).await?;
            if let Some(grant) = self.hold_attached(claim, spot.created, at, followed).await? {
                return Ok(grant);
            }
        }
    }

    /// Records that the claim holds the lock. Returns `None` if its key has an earlier lease.
    async fn hold_attached(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        created: i64,
        at: Instant,
        followed: bool,
    ) -> Result<Option<Grant>, Error> {
        let lease = claim.lease();
        // An answer proves nothing about the lease: this process may have been stopped.
        if !self.is_covered(lease) {
            Box::pin(self.cover(lease)).await?;
        }
        let since = self.since(at, lease).ok_or_else(gone)?;
        // After the beat was read: see `lease`.
        if !self.is_attached(claim) {
            return Ok(None);
        }
        let token = token(created).ok_or_else(no_tokens)?;
        let (grant, first) = claim.grant(token, since).ok_or_else(gone)?;
        if first {
            self.granted(claim);
            // A later claim sees from the numbers that this one has its permits. A waiter behind it
            // watches only this key.
            if followed && matches!(claim.mode(), Mode::Permits { .. }) {
                self.wake_next(claim);
            }
        }
        Ok(Some(grant))
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
                tracing::debug!(target: "dlock", %error, lock.name = %claim.name(), "the next waiter was not woken");
            }
        });
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

fn behind_others() -> Failure {
    let why = "the member is behind the others, and does not catch up";
    Failure::new(FailureKind::Late, Certainty::NotApplied, why)
}

/// Waits for the next message of a watch that may not be set.
async fn next(own: &mut Option<OwnWatch>) -> Result<Seen, Failure> {
    match own {
        Some(own) => own.watch.next().await,
        None => std::future::pending().await,
    }
}
