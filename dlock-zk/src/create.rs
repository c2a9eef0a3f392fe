//! Creating the nodes of claims, and missing directories.
//!
//! If the answer to a creation is lost, the node may exist, or be created later. The order is then:
//! end the epoch, after which no late creation is possible; read the directories; use the nodes if
//! all are there, or delete the rest and create again. Without the first step, a second creation
//! could make two nodes of one claim.

use std::{sync::Arc, time::Duration};

use dlock_core::{Backoff, Clock};
use futures_util::future::{join, join_all, try_join_all};
use zookeeper_client::{CreateMode, Error as ZkError, MultiWriteError, MultiWriteResult};

use crate::{
    claim::{OwnClaim, Spot},
    error::{is_passing, is_unknown},
    node::{Node, child},
    queue::{IN_ORDER, Queue},
    session::Session,
};

/// A node, and a list of its directory that is no older, if one came.
pub(crate) type Made = (Spot, Option<Arc<Queue>>);

/// The error of a creation.
pub(crate) struct NotMade {
    pub(crate) error: ZkError,
    /// Nodes may exist, or be created later, by a creation that wrote to this epoch.
    pub(crate) doubtful: Option<Option<Arc<str>>>,
}

impl From<ZkError> for NotMade {
    fn from(error: ZkError) -> Self {
        Self { error, doubtful: None }
    }
}

impl Session {
    /// Creates the nodes of all these claims or of none, with one transaction.
    ///
    /// The creation and the lists are sent back to back. The servers execute the requests of a
    /// session in order, and a server applies changes in one order. So a list has its node and all
    /// nodes before it.
    ///
    /// # Errors No node exists, unless the error says that this is doubtful: after a lost answer,
    /// the servers also refused what would have made the outcome certain.
    pub(crate) async fn create(&self, claims: &[Arc<OwnClaim>]) -> Result<Vec<Made>, NotMade> {
        let dirs: Vec<_> = claims.iter().map(|claim| self.dir(claim.name())).collect();
        let is_over = || claims.iter().any(|claim| claim.is_over());
        let mut pause = Backoff::new();
        let mut has_dirs = true;
        loop {
            let epoch = self.epoch().await?;
            let sent = Clock::Boot.now();
            // Sent in this order, since they are first polled in it.
            let missing = if has_dirs { &[][..] } else { &dirs[..] };
            let dirs_made = join_all(missing.iter().map(|dir| self.make_dir(dir)));
            let made = self.make_nodes(claims, &dirs, epoch.as_deref());
            let (dirs_made, (made, lists)) =
                join(dirs_made, join(made, self.list_all(&dirs))).await;
            match (made, &epoch) {
                (Ok(spots), _) => {
                    self.heard(sent);
                    return Ok(spots.into_iter().zip(lists).collect());
                }
                // The epoch node was deleted, or the epoch has just been ended by another creation.
                (
                    Err(MultiWriteError::OperationFailed { index: 0, source: ZkError::NoNode }),
                    Some(epoch),
                ) => self.end_epoch(epoch).await?,
                // A directory is missing, or was removed before the node was created, perhaps with
                // its parent.
                (Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }), _)
                    if !is_over() =>
                {
                    self.mend_dirs(dirs_made).await?;
                    if !has_dirs {
                        // It was removed again, or could not be created at this moment.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    has_dirs = false;
                }
                (Err(error), _) => {
                    let error = ZkError::from(error);
                    if !is_passing(&error) || self.is_over() {
                        return Err(error.into());
                    }
                    if is_unknown(&error) {
                        match self.find_created(claims, &dirs, epoch.as_deref()).await {
                            Ok(None) => {}
                            Ok(Some(found)) => return Ok(found),
                            Err(error) => return Err(NotMade { error, doubtful: Some(epoch) }),
                        }
                    }
                    if is_over() {
                        // The claims have ended, and their nodes do not exist.
                        return Err(error.into());
                    }
                    pause.wait().await;
                }
            }
        }
    }

    /// Creates the nodes. The transaction writes the epoch node, unless a single server decides
    /// alone.
    async fn make_nodes(
        &self,
        claims: &[Arc<OwnClaim>],
        dirs: &[String],
        epoch: Option<&str>,
    ) -> Result<Vec<Spot>, MultiWriteError> {
        let mode = CreateMode::EphemeralSequential.with_acls(self.acl.for_driver());
        let data = |claim: &OwnClaim| claim.record().text();
        let prefix =
            |claim: &OwnClaim, dir: &str| format!("{dir}/{}", child(claim.claim(), claim.mode()));
        if let (None, [claim], [dir]) = (epoch, claims, dirs) {
            let prefix = prefix(claim, dir);
            let made = self.client.create(&prefix, data(claim).as_bytes(), &mode);
            let (stat, number) = self
                .answer(made)
                .await
                .map_err(|source| MultiWriteError::OperationFailed { index: 1, source })?;
            return Ok(vec![spot(claim, dir, &format!("{prefix}{number}"), stat.czxid)?]);
        }
        let mut nodes = self.client.new_multi_writer();
        if let Some(epoch) = epoch {
            nodes.add_set_data(epoch, b"", None)?;
        }
        for (claim, dir) in claims.iter().zip(dirs) {
            nodes.add_create(&prefix(claim, dir), data(claim).as_bytes(), &mode)?;
        }
        // All changes of one transaction have its zxid.
        let mut number = None;
        let mut paths = Vec::with_capacity(claims.len());
        for made in self.answer(nodes.commit()).await? {
            match made {
                MultiWriteResult::SetData { stat } => number = Some(stat.mzxid),
                MultiWriteResult::Create { path, stat } => {
                    number.get_or_insert(stat.czxid);
                    paths.push(path);
                }
                _ => return Err(odd()),
            }
        }
        let (Some(mut number), Some(first)) = (number, paths.first()) else { return Err(odd()) };
        if number <= 0 {
            // Servers before 3.8.2 leave it out of the result of a transaction (ZOOKEEPER-4026).
            let stat = self.read(|| self.client.check_stat(first)).await?;
            number = stat.ok_or_else(odd)?.czxid;
        }
        let spots = claims.iter().zip(dirs).zip(&paths);
        spots.map(|((claim, dir), path)| spot(claim, dir, path, number)).collect()
    }

    /// Returns lists of all the directories, with `None` for each that fails.
    async fn list_all(&self, dirs: &[String]) -> Vec<Option<Arc<Queue>>> {
        // One request each, since servers before 3.6 have no other way.
        let lists = dirs.iter().map(|dir| self.answer(self.lists.queue(dir)));
        join_all(lists).await.into_iter().map(Result::ok).collect()
    }

    /// Makes certain that a creation that wrote to this epoch, and was not answered, is not
    /// executed any more. The next read shows whether it was.
    pub(crate) async fn settle_creation(&self, epoch: Option<&str>) -> Result<(), ZkError> {
        match epoch {
            Some(epoch) => self.end_epoch(epoch).await,
            None => self.catch_up().await,
        }
    }

    /// Looks for nodes whose creation was not answered. All exist or none.
    async fn find_created(
        &self,
        claims: &[Arc<OwnClaim>],
        dirs: &[String],
        epoch: Option<&str>,
    ) -> Result<Option<Vec<Made>>, ZkError> {
        self.settle_creation(epoch).await?;
        let searches =
            claims.iter().zip(dirs).map(async |(claim, dir)| self.find_own(claim, dir).await);
        let found: Vec<Option<Spot>> = try_join_all(searches).await?;
        if found.iter().all(Option::is_some) {
            return Ok(Some(found.into_iter().flatten().map(|spot| (spot, None)).collect()));
        }
        // Another client has deleted some of them, so the rest is deleted, and all are created
        // again.
        for spot in found.into_iter().flatten() {
            self.delete(&spot).await?;
        }
        Ok(None)
    }

    /// Returns a node of a claim in this session.
    pub(crate) async fn find_own(
        &self,
        claim: &OwnClaim,
        dir: &str,
    ) -> Result<Option<Spot>, ZkError> {
        let Some(queue) = self.listing(dir).await? else { return Ok(None) };
        for node in queue.of_claim(claim.claim()) {
            let path = format!("{dir}/{}", node.child);
            let stat = self.read(|| self.client.check_stat(&path)).await?;
            // A node of an earlier session is removed with that session, so it can't be used.
            if let Some(stat) =
                stat.filter(|stat| stat.ephemeral_owner == self.client.session_id().0)
            {
                return Ok(Some(spot(claim, dir, &path, node.since.unwrap_or(stat.czxid))?));
            }
        }
        Ok(None)
    }

    /// Creates a directory that the servers remove when it is empty.
    pub(crate) async fn make_dir(&self, dir: &str) -> Result<(), ZkError> {
        let container = CreateMode::Container.with_acls(self.acl.for_driver());
        match self.answer(self.client.create(dir, b"", &container)).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the parent that directories need, or returns the error that prevents them.
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

    /// Creates the directory of the locks' directories, and its parents.
    pub(crate) async fn make_root(&self) -> Result<(), ZkError> {
        loop {
            match self.make_levels().await {
                // One of them was empty, and the servers have just removed it. If the chroot itself
                // is missing, the error is returned.
                Err(ZkError::NoNode) if self.has_node("/").await? => {}
                answer => return answer,
            }
        }
    }

    async fn make_levels(&self) -> Result<(), ZkError> {
        let root = self.root();
        for (at, _) in root.match_indices('/').skip(1).chain([(root.len(), "")]) {
            let dir = &root[..at];
            // Checked first, since the user may have no right to create an existing one.
            if at > 0 && !self.has_node(dir).await? {
                self.read(|| self.make_dir(dir)).await?;
            }
        }
        Ok(())
    }

    /// Returns whether a node exists. ZooKeeper 3.8.4, 3.9.2 and later require the right to read it
    /// (ZOOKEEPER-2590), and only an existing node can deny that.
    pub(crate) async fn has_node(&self, path: &str) -> Result<bool, ZkError> {
        match self.read(|| self.client.check_stat(path)).await {
            Err(ZkError::NoAuth) => Ok(true),
            stat => Ok(stat?.is_some()),
        }
    }
}

/// Returns the node that was created for a claim.
fn spot(claim: &OwnClaim, dir: &str, path: &str, czxid: i64) -> Result<Spot, MultiWriteError> {
    let node = path.rsplit('/').next().and_then(Node::parse).ok_or_else(odd)?;
    Ok(Spot {
        dir: dir.to_owned(),
        worn: !IN_ORDER.contains(&node.number),
        child: node.child,
        czxid,
        mode: claim.mode(),
        is_renamed: false,
        watch: None,
    })
}

fn odd() -> MultiWriteError {
    let what = "a transaction made something else than was asked for";
    ZkError::UnexpectedError(what.to_owned()).into()
}
