//! Waiting for a grant.
//!
//! No server grants anything: a claim holds the lock when no node that blocks it is left. A waiter
//! watches one such node. Its deletion may be the grant at once ([`Then::Granted`]), or the queue
//! has to be read again. A lost watch event costs at most one session timeout: then the waiter
//! polls.
//!
//! An event may come from a partitioned server, or arrive long after it happened. So before a grant
//! counts, the claim's own node must still exist, and a beat must be recent: see
//! [`Session::grant`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dlock_core::{AcquireRequest, Clock, Error, Grant, unknown_format};
use futures_util::FutureExt;
use zookeeper_client::{Error as ZkError, EventType, OneshotWatcher};

use crate::{
    claim::{OwnClaim, Spot, Stage},
    error::{explain, gone, is_over},
    node::Node,
    queue::{Queue, Standing, Watch},
    record::{Mark, Record},
    session::Session,
};

/// The end of a wait.
enum Turn {
    /// The claim holds the lock, according to a list.
    Held { followed: bool },
    /// The claim holds the lock, derived from an event about another node.
    Deduced,
    /// The claim's node was deleted.
    Gone,
    /// A node before the claim has this format, which this version does not read.
    Unread(u64),
}

/// The result of a read of the watched node.
enum Seen {
    /// The claim holds the lock, according to a list.
    Held { followed: bool },
    /// The claim holds the lock.
    Granted,
    /// The queue has to be read again.
    Changed,
    /// No change yet. The watcher reports the next change.
    Watching { watcher: OneshotWatcher, then: Then },
}

/// The meaning of an event, or of a long silence, for the waiter.
enum Then {
    /// The deletion of this path is the grant.
    Granted(String),
    /// The deletion of this path is the grant, or the queue has to be read again.
    Gone(String, Before),
    /// The queue has to be read again after any event.
    Read,
}

/// The claim whose node is watched, if it belongs to this session.
type Before = Option<Arc<OwnClaim>>;

impl Then {
    /// Returns whether the deletion of the watched node is the grant.
    ///
    /// A claim of this session that held the lock exclusively was the first in the queue. So if one
    /// client has many waiters, they do not have to read the queue for each hand-off.
    fn is_grant(&self) -> bool {
        match self {
            Self::Granted(_) => true,
            Self::Gone(_, before) => before.as_ref().is_some_and(|before| before.was_alone()),
            Self::Read => false,
        }
    }
}

impl Session {
    /// Waits until a queued claim is granted.
    pub(crate) async fn wait(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant, Error> {
        let claim = self.find(request.claim).ok_or_else(gone)?;
        let _waiting = claim.wait();
        let Stage::There(spot) = claim.stage.lock().await.clone() else { return Err(gone()) };
        if claim.is_granted() {
            return self.grant(&claim, &spot, false).await;
        }
        let mut states = self.client.state_watcher();
        states.state();
        let is_watched = AtomicBool::new(false);
        let mut own = std::pin::pin!(self.until_own_node_is_deleted(&claim, &is_watched));
        let turn = tokio::select! {
            // The own node first, so that it is watched before the one that blocks the claim.
            biased;
            () = claim.until_over() => Err(gone()),
            () = self.until_over() => Err(gone()),
            () = own.as_mut() => Ok(Turn::Gone),
            turn = self.turn(&spot) => turn.map_err(waiter_error),
        };
        let followed = match turn? {
            Turn::Held { followed } => Some(followed),
            // Events come in the server's order. If the claim's own node had been deleted before,
            // its event would be here, if it is watched.
            Turn::Deduced if own.as_mut().now_or_never().is_some() => None,
            // After a reconnect, the events of the outage come in any order.
            Turn::Deduced
                if is_watched.load(Ordering::SeqCst)
                    && states.changed().now_or_never().is_none() =>
            {
                Some(true)
            }
            Turn::Deduced => {
                self.has_node(&spot.path()).await.map_err(waiter_error)?.then_some(true)
            }
            Turn::Gone => None,
            Turn::Unread(format) => return Err(unknown_format(format)),
        };
        match followed {
            Some(followed) => self.grant(&claim, &spot, followed).await,
            None => {
                self.lose(&claim);
                Err(gone())
            }
        }
    }

    /// Waits until the claim's turn comes.
    async fn turn(&self, spot: &Spot) -> Result<Turn, ZkError> {
        // The acquire has read the queue already.
        let mut known = spot.watch.clone().map(Standing::Behind);
        loop {
            let standing = match known.take() {
                Some(standing) => standing,
                None => self.standing_of_waiter(spot).await?,
            };
            let watch = match standing {
                Standing::Held { followed } => return Ok(Turn::Held { followed }),
                Standing::Behind(watch) => watch,
                Standing::Gone | Standing::Conflict(_) => return Ok(Turn::Gone),
                Standing::Unread(format) => return Ok(Turn::Unread(format)),
            };
            match self.watch_blocker(spot, watch).await? {
                Seen::Held { followed } => return Ok(Turn::Held { followed }),
                Seen::Granted => return Ok(Turn::Deduced),
                Seen::Changed => {}
                Seen::Watching { watcher, then } => {
                    if self.happens(watcher, &then).await? {
                        return Ok(Turn::Deduced);
                    }
                }
            }
        }
    }

    /// Reads the node that blocks the claim, and sets a watch on it.
    async fn watch_blocker(&self, spot: &Spot, watch: Watch) -> Result<Seen, ZkError> {
        let client = &self.client;
        let child = match &watch {
            Watch::Last(child)
            | Watch::Child(child)
            | Watch::Writer(child)
            | Watch::Waiter(child) => child,
            Watch::Children => {
                let dir = spot.dir.clone();
                let listed = self.poll(|| client.list_and_watch_children(&dir)).await;
                let (children, watcher) = match listed {
                    Ok(listed) => listed,
                    Err(ZkError::NoNode) => return Ok(Seen::Changed),
                    Err(error) => return Err(error),
                };
                return Ok(
                    match self.standing(spot, Some(Arc::new(Queue::of(children)))).await? {
                        Standing::Held { followed } => Seen::Held { followed },
                        Standing::Behind(Watch::Children) => {
                            Seen::Watching { watcher, then: Then::Read }
                        }
                        _ => Seen::Changed,
                    },
                );
            }
        };
        let path = format!("{}/{child}", spot.dir);
        // With getData, no watch is left on the server if there is no node. With exists, one would
        // be.
        let (data, watcher) = match self.poll(|| client.get_and_watch_data(&path)).await {
            Ok((data, _, watcher)) => (data, watcher),
            Err(ZkError::NoNode) if matches!(watch, Watch::Last(_)) => return Ok(Seen::Granted),
            Err(ZkError::NoNode) => return Ok(Seen::Changed),
            Err(error) => return Err(error),
        };
        let then = match watch {
            Watch::Last(_) => Then::Granted(path),
            Watch::Child(child) if !Record::has(&data, Mark::Shared) => {
                let before = Node::parse(child).and_then(|node| self.find(node.claim));
                Then::Gone(path, before)
            }
            Watch::Writer(_) if !Record::has(&data, Mark::Shared) => Then::Read,
            Watch::Waiter(_) if !Record::has(&data, Mark::Granted) => Then::Read,
            // The node has been marked since the list was made.
            _ => return Ok(Seen::Changed),
        };
        Ok(Seen::Watching { watcher, then })
    }

    /// Waits until the watched node changes. Returns true if that is the grant. If the event is
    /// lost, a poll after each session timeout finds the change.
    async fn happens(&self, watcher: OneshotWatcher, then: &Then) -> Result<bool, ZkError> {
        let mut event = std::pin::pin!(self.alive.clone().event(watcher));
        loop {
            tokio::select! {
                event = &mut event => {
                    let event = event.ok_or(ZkError::ClientClosed)?;
                    let deleted = event.event_type == EventType::NodeDeleted;
                    return Ok(deleted && then.is_grant());
                }
                () = tokio::time::sleep(self.timeout) => match then {
                    Then::Granted(path) | Then::Gone(path, _) => {
                        if self.poll(|| self.client.check_stat(path)).await?.is_none() {
                            return Ok(false);
                        }
                    }
                    Then::Read => return Ok(false),
                },
            }
        }
    }

    /// Turns the end of a wait into a grant.
    async fn grant(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        spot: &Spot,
        followed: bool,
    ) -> Result<Grant, Error> {
        // The event proves nothing about the session: its server may be partitioned from the
        // leader, or this process may have been stopped.
        self.prove_lease(claim.lease()).await.map_err(waiter_error)?;
        self.hold(claim, spot, Clock::Boot.now(), followed)
    }
}

/// If the session has ended, the waiter gets `NotHeld`, and the core sends a new claim.
fn waiter_error(error: ZkError) -> Error {
    if is_over(&error) { gone() } else { explain(error) }
}
