//! Waiting for a grant.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Clock, Error, Grant};
use zookeeper_client::{Error as ZkError, EventType, OneshotWatcher};

use crate::{
    data::{Data, Mark},
    error::{explain, gone, is_over, no_answer},
    place::{Place, Spot, Stage},
    queue::{Standing, Watch},
    session::Session,
};

/// What a look at the watched node comes to.
enum Seen {
    /// The lock is the claim's.
    Granted,
    /// How it stands has to be read again.
    Changed,
    /// Nothing yet: the watcher tells.
    Watching { watcher: OneshotWatcher, path: String, last: bool },
}

impl Session {
    /// Waits until a queued claim is granted.
    pub(crate) async fn wake(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant, Error> {
        let place = self.find(request.claim).ok_or_else(gone)?;
        let _waiting = place.wait();
        let Stage::There(mut spot) = place.stage.lock().await.clone() else { return Err(gone()) };
        if place.is_granted() {
            return self.grant(&place, &spot).await;
        }
        let waited = async {
            self.turn(&mut spot).await.map_err(|error| match error {
                error if is_over(&error) => gone(),
                error => explain(error),
            })
        };
        tokio::select! {
            biased;
            // Told before a turn that came later: both events come in the server's order.
            () = self.own_node_goes(&place) => {
                self.lose(&place);
                Err(gone())
            }
            () = place.until_over() => Err(gone()),
            () = self.until_over() => Err(gone()),
            turn = waited => match turn? {
                true => self.grant(&place, &spot).await,
                false => {
                    self.lose(&place);
                    Err(gone())
                }
            },
        }
    }

    /// Waits until the claim's turn comes; false when its node is gone.
    async fn turn(&self, spot: &mut Spot) -> Result<bool, ZkError> {
        // What the acquire has found need not be asked for again.
        let mut known = spot.watch.clone().map(Standing::Behind);
        loop {
            let standing = match known.take() {
                Some(standing) => standing,
                None => self.standing(spot, None).await?,
            };
            let watch = match standing {
                Standing::Held => return Ok(true),
                Standing::Behind(watch) => watch,
                Standing::Gone | Standing::Conflict(_) => return Ok(false),
            };
            match self.look(spot, watch).await? {
                Seen::Granted => return Ok(true),
                Seen::Changed => {}
                Seen::Watching { watcher, path, last } => {
                    if self.happens(watcher, &path).await? && last {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Looks at what stands in the way, and leaves a watch there.
    async fn look(&self, spot: &Spot, watch: Watch) -> Result<Seen, ZkError> {
        let client = &self.client;
        let (child, last) = match &watch {
            Watch::Last(child) => (child, true),
            Watch::Child(child) | Watch::Writer(child) | Watch::Waiter(child) => (child, false),
            Watch::Children => {
                let dir = spot.dir.clone();
                let listed = self.read(|| client.list_and_watch_children(&dir)).await;
                let (children, watcher) = match listed {
                    Ok(listed) => listed,
                    Err(ZkError::NoNode) => return Ok(Seen::Changed),
                    Err(error) => return Err(error),
                };
                return Ok(match self.standing(spot, Some(children)).await? {
                    Standing::Held => Seen::Granted,
                    Standing::Behind(Watch::Children) => {
                        Seen::Watching { watcher, path: spot.path(), last: false }
                    }
                    _ => Seen::Changed,
                });
            }
        };
        let path = format!("{}/{child}", spot.dir);
        // A watch by getData leaves nothing behind where there is no node.
        match self.read(|| client.get_and_watch_data(&path)).await {
            Ok((data, ..))
                if matches!(watch, Watch::Writer(_)) && Data::has(&data, Mark::Shared) =>
            {
                Ok(Seen::Granted)
            }
            Ok((data, ..))
                if matches!(watch, Watch::Waiter(_)) && Data::has(&data, Mark::Granted) =>
            {
                Ok(Seen::Changed)
            }
            Ok((_, _, watcher)) => Ok(Seen::Watching { watcher, path, last }),
            Err(ZkError::NoNode) if last => Ok(Seen::Granted),
            Err(ZkError::NoNode) => Ok(Seen::Changed),
            Err(error) => Err(error),
        }
    }

    /// Waits until something happens to what is watched; whether it was deleted. Should the
    /// message be lost, a look now and then finds it.
    async fn happens(&self, watcher: OneshotWatcher, path: &str) -> Result<bool, ZkError> {
        let mut event = std::pin::pin!(watcher.changed());
        loop {
            tokio::select! {
                event = &mut event => return Ok(event.event_type == EventType::NodeDeleted),
                () = tokio::time::sleep(self.timeout) => {
                    if self.read(|| self.client.check_stat(path)).await?.is_none() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// The claim's turn has come.
    async fn grant(self: &Arc<Self>, place: &Arc<Place>, spot: &Spot) -> Result<Grant, Error> {
        let now = Clock::Boot.now();
        let mut since = self.beat();
        // That the news has come proves nothing of the session: the server that brought it may be
        // cut off by now, or this process may have stood still.
        if now.since(since) > self.timeout / 4 {
            let heartbeat = tokio::time::timeout(self.patience(), self.heartbeat());
            since = match heartbeat.await {
                Ok(Ok(since)) => since,
                Ok(Err(error)) if is_over(&error) => return Err(gone()),
                Ok(Err(error)) => return Err(explain(error)),
                Err(_) => return Err(no_answer()),
            };
        }
        self.hold(place, spot, since)
    }
}
