//! Making the nodes of claims, with their directories where they are missing.

use std::{sync::Arc, time::Duration};

use dlock_core::{ClaimId, Clock, Mode};
use futures_util::future::{join, join_all, try_join_all};
use zookeeper_client::{CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use crate::{
    data::Data,
    error::{is_passing, is_unknown},
    node::{Node, child},
    place::{Place, Spot},
    queue::IN_ORDER,
    session::Session,
};

/// A node, and a list of its directory that is no older, if one came.
pub(crate) type Made = (Spot, Option<Vec<String>>);

impl Session {
    /// Makes the nodes of all these claims or of none, by one transaction.
    ///
    /// Nodes and lists are asked for back to back: a session's requests are served in their order,
    /// and a server applies changes in one order, so a list holds its node and all before it.
    pub(crate) async fn create(&self, places: &[Arc<Place>]) -> Result<Vec<Made>, ZkError> {
        let dirs: Vec<_> = places.iter().map(|place| self.dir(&place.name)).collect();
        let is_over = || places.iter().any(|place| place.is_over());
        let mut pause = Duration::from_millis(5);
        let mut has_dirs = true;
        loop {
            let epoch = self.epoch().await?;
            let sent = Clock::Boot.now();
            // Called in the order in which they are to be sent.
            let dirs_made = (!has_dirs).then(|| dirs.iter().map(|dir| self.make_dir(dir)));
            let dirs_made = join_all(dirs_made.into_iter().flatten().collect::<Vec<_>>());
            let made = self.make_nodes(places, &dirs, &epoch)?;
            let listed = self.list_all(&dirs);
            let (dirs_made, (made, listed)) = join(dirs_made, join(made, listed)).await;
            match made {
                Ok(made) => {
                    self.heard(sent);
                    return spots(places, &dirs, made, listed);
                }
                // Somebody has deleted it, or it has just been ended.
                Err(MultiWriteError::OperationFailed { index: 0, source: ZkError::NoNode }) => {
                    self.end_epoch(&epoch).await?;
                }
                // A directory is missing, or went before the node came; with it maybe the one
                // that holds it.
                Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. })
                    if !is_over() =>
                {
                    self.mend_dirs(dirs_made).await?;
                    if !has_dirs {
                        // It went again, or could not be made just now.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    has_dirs = false;
                }
                Err(error) => {
                    let error = ZkError::from(error);
                    if !is_passing(&error) || self.is_over() {
                        return Err(error);
                    }
                    if is_unknown(&error) {
                        self.end_epoch(&epoch).await?;
                        if let Some(found) = self.find_all(places, &dirs).await? {
                            return Ok(found);
                        }
                    }
                    if is_over() {
                        // Nobody wants them any more, and they are not there.
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
            }
        }
    }

    /// The transaction that makes the nodes. It is sent when this is called, as the driver's
    /// requests are.
    fn make_nodes(
        &self,
        places: &[Arc<Place>],
        dirs: &[String],
        epoch: &str,
    ) -> Result<impl Future<Output = Result<Vec<MultiWriteResult>, MultiWriteError>>, ZkError> {
        let node = CreateMode::EphemeralSequential.with_acls(self.acl.for_driver());
        let mut nodes = self.client.new_multi_writer();
        // Also for its number: what a multi tells of nodes that it made is wrong before 3.8.2
        // (ZOOKEEPER-4026).
        nodes.add_set_data(epoch, b"", None)?;
        for (place, dir) in places.iter().zip(dirs) {
            let path = format!("{dir}/{}", child(place.claim, place.mode()));
            nodes.add_create(&path, Data::of(place.lease()).text().as_bytes(), &node)?;
        }
        Ok(self.commit(nodes))
    }

    /// Lists of all the directories, where they come. They are asked for when this is called.
    fn list_all<'a>(
        &'a self,
        dirs: &'a [String],
    ) -> impl Future<Output = Vec<Option<Vec<String>>>> + Send + 'a {
        // By one request each: servers before 3.6 know no other.
        let lists: Vec<_> =
            dirs.iter().map(|dir| self.answer(self.client.list_children(dir))).collect();
        async move { join_all(lists).await.into_iter().map(Result::ok).collect() }
    }

    /// Looks for nodes whose creation was not answered, and can't come any more: all are there or
    /// none is.
    async fn find_all(
        &self,
        places: &[Arc<Place>],
        dirs: &[String],
    ) -> Result<Option<Vec<Made>>, ZkError> {
        let searches = places
            .iter()
            .zip(dirs)
            .map(async |(place, dir)| self.find_own(dir, place.claim, place.mode()).await);
        let found: Vec<Option<Spot>> = try_join_all(searches).await?;
        if found.iter().all(Option::is_some) {
            return Ok(Some(found.into_iter().flatten().map(|spot| (spot, None)).collect()));
        }
        // Somebody has deleted some of them.
        for spot in found.into_iter().flatten() {
            self.delete(&spot).await?;
        }
        Ok(None)
    }

    async fn find_own(
        &self,
        dir: &str,
        claim: ClaimId,
        mode: Mode,
    ) -> Result<Option<Spot>, ZkError> {
        let Some(children) = self.list(dir, None).await? else { return Ok(None) };
        let nodes = children.iter().filter_map(|child| Node::parse(child));
        for node in nodes.filter(|node| node.claim == claim) {
            let path = format!("{dir}/{}", node.child);
            let stat = self.read(|| self.client.check_stat(&path)).await?;
            // One of an earlier session goes with that session.
            if let Some(stat) =
                stat.filter(|stat| stat.ephemeral_owner == self.client.session_id().0)
            {
                let czxid = node.since.unwrap_or(stat.czxid);
                return Ok(Some(spot(dir, node, czxid, mode)));
            }
        }
        Ok(None)
    }

    /// Makes a directory that goes when it is empty. The request is sent when this is called.
    fn make_dir<'a>(
        &'a self,
        dir: &'a str,
    ) -> impl Future<Output = Result<(), ZkError>> + Send + 'a {
        let container = CreateMode::Container.with_acls(self.acl.for_driver());
        let made = self.answer(self.client.create(dir, b"", &container));
        async move {
            match made.await {
                Ok(_) | Err(ZkError::NodeExists) => Ok(()),
                Err(error) => Err(error),
            }
        }
    }

    /// Makes what kept directories from being made, or says what does.
    async fn mend_dirs(&self, made: Vec<Result<(), ZkError>>) -> Result<(), ZkError> {
        if made.contains(&Err(ZkError::NoNode)) {
            return match self.root() {
                // The chroot itself is missing.
                "" => Err(ZkError::NoNode),
                _ => self.make_root().await,
            };
        }
        match made.into_iter().filter_map(Result::err).find(|error| !is_passing(error)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Makes the directory of the locks' directories, and those above it.
    pub(crate) async fn make_root(&self) -> Result<(), ZkError> {
        loop {
            match self.make_levels().await {
                // One of them was empty, and has been cleaned up just now; unless it is the chroot.
                Err(ZkError::NoNode)
                    if self.read(|| self.client.check_stat("/")).await?.is_some() => {}
                answer => return answer,
            }
        }
    }

    async fn make_levels(&self) -> Result<(), ZkError> {
        let root = self.root();
        for (at, _) in root.match_indices('/').skip(1).chain([(root.len(), "")]) {
            let dir = &root[..at];
            // Asked for first: making what is there may be forbidden.
            if at > 0 && self.read(|| self.client.check_stat(dir)).await?.is_none() {
                self.read(|| self.make_dir(dir)).await?;
            }
        }
        Ok(())
    }
}

/// Reads what the transaction has made.
fn spots(
    places: &[Arc<Place>],
    dirs: &[String],
    made: Vec<MultiWriteResult>,
    listed: Vec<Option<Vec<String>>>,
) -> Result<Vec<Made>, ZkError> {
    let mut made = made.into_iter();
    let Some(MultiWriteResult::SetData { stat: epoch }) = made.next() else { return Err(odd()) };
    let mut spots = Vec::with_capacity(places.len());
    for (((place, dir), list), made) in places.iter().zip(dirs).zip(listed).zip(made) {
        let MultiWriteResult::Create { path, .. } = made else { return Err(odd()) };
        let node = path.rsplit('/').next().and_then(Node::parse).ok_or_else(odd)?;
        // All of one transaction have its number.
        spots.push((spot(dir, node, epoch.mzxid, place.mode()), list));
    }
    Ok(spots)
}

fn spot(dir: &str, node: Node, czxid: i64, mode: Mode) -> Spot {
    let worn = !IN_ORDER.contains(&node.number);
    Spot { dir: dir.to_owned(), child: node.child, czxid, mode, worn, watch: None }
}

fn odd() -> ZkError {
    ZkError::UnexpectedError("a transaction made something else than was asked for".to_owned())
}
