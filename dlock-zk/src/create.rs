//! Making a claim's node, with the directory where it is missing.

use dlock_core::{ClaimId, Mode};
use futures_util::future::join;
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::{
    data::Data,
    error::is_passing,
    node::{Node, child},
    place::{Place, Spot},
    queue::IN_ORDER,
    session::Session,
};

impl Session {
    /// Makes a claim's node. With it comes a list of its directory that is no older, if one came.
    ///
    /// Node and list are asked for back to back: a session's requests are served in their order,
    /// and a server applies changes in one order, so the list holds this node and all before it.
    pub(crate) async fn create(
        &self,
        place: &Place,
        data: Data,
    ) -> Result<(Spot, Option<Vec<String>>), ZkError> {
        let (dir, claim, mode) = (self.dir(&place.name), place.claim, place.mode());
        let child = child(claim, mode);
        let (prefix, data) = (format!("{dir}/{child}"), data.text());
        let node = CreateMode::EphemeralSequential.with_acls(self.acl.for_driver());
        let sent = dlock_core::Clock::Boot.now();
        let mut pause = std::time::Duration::from_millis(5);
        let mut has_dir = true;
        loop {
            let making = async {
                // Called in the order in which they are to be sent.
                let dir_made = (!has_dir).then(|| self.make_dir(&dir));
                let made = self.answer(self.client.create(&prefix, data.as_bytes(), &node));
                let listed = self.answer(self.client.list_children(&dir));
                match dir_made {
                    Some(dir_made) => join(dir_made, join(made, listed)).await,
                    None => (Ok(()), join(made, listed).await),
                }
            };
            let (dir_made, (made, listed)) = making.await;
            match made {
                Ok((stat, number)) => {
                    self.heard(sent);
                    let child = format!("{child}{number}");
                    let worn = !IN_ORDER.contains(&number.into_i64());
                    let spot = Spot { dir, child, czxid: stat.czxid, mode, worn, watch: None };
                    return Ok((spot, listed.ok()));
                }
                // The directory is missing, or went before the node came; with it maybe the one
                // that holds it.
                Err(ZkError::NoNode) if !place.is_over() => {
                    if matches!(dir_made, Err(ZkError::NoNode)) {
                        if self.root().is_empty() {
                            // The chroot itself is missing.
                            return Err(ZkError::NoNode);
                        }
                        self.make_root().await?;
                    } else if let Err(error) = dir_made
                        && !is_passing(&error)
                    {
                        return Err(error);
                    }
                    if !has_dir {
                        // It went again, or could not be made just now.
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    }
                    has_dir = false;
                }
                Err(error) if is_passing(&error) && !self.is_over() => {
                    if let Some(spot) = self.find_own(&dir, claim, mode).await? {
                        return Ok((spot, None));
                    }
                    if place.is_over() {
                        // Nobody wants it any more, and it is not there.
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(std::time::Duration::from_millis(500));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks for the node of a claim after its creation was not answered.
    ///
    /// A heartbeat first: a server may not have applied yet what the leader has accepted, and
    /// whatever of this session is still on its way to a leader comes to nothing after it. Without
    /// it the search may miss the node, and a second one would wait behind the first for ever.
    pub(crate) async fn find_own(
        &self,
        dir: &str,
        claim: ClaimId,
        mode: Mode,
    ) -> Result<Option<Spot>, ZkError> {
        self.catch_up().await?;
        let Some(children) = self.list(dir, None).await? else { return Ok(None) };
        let mut found: Option<Spot> = None;
        let nodes = children.iter().filter_map(|child| Node::parse(child));
        for node in nodes.filter(|node| node.claim == claim) {
            let path = format!("{dir}/{}", node.child);
            let stat = self.read(|| self.client.check_stat(&path)).await?;
            // One of an earlier session goes with that session.
            if let Some(stat) =
                stat.filter(|stat| stat.ephemeral_owner == self.client.session_id().0)
            {
                let spot = Spot {
                    dir: dir.to_owned(),
                    worn: !IN_ORDER.contains(&node.number),
                    child: node.child,
                    czxid: node.since.unwrap_or(stat.czxid),
                    mode,
                    watch: None,
                };
                // There is one. Were there two, the younger one would wait behind the older.
                if let Some(other) = found.replace(spot) {
                    self.delete_all(&[other]).await?;
                }
            }
        }
        Ok(found)
    }

    /// Makes a directory that goes when it is empty. The request is sent when this is called, as
    /// the driver's are.
    pub(crate) fn make_dir<'a>(
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
