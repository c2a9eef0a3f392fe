//! Several locks at one point of ZooKeeper's order.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Acquired, Clock, Error};
use futures_util::future::{join_all, try_join_all};
use zookeeper_client::{
    CreateMode, Error as ZkError, MultiReadResult, MultiWriteError, MultiWriteResult,
};

use crate::{
    data::Data,
    error::{explain, gone, is_passing},
    node::{Node, child},
    place::{Place, Spot, Stage},
    queue::IN_ORDER,
    session::Session,
};

/// How long all names together may be: the servers cut a connection that sends more than 1 MiB
/// (`jute.maxbuffer`).
const LONGEST: usize = 512 * 1024;

/// A node, and a list of its directory that is no older.
type Made = (Spot, Option<Vec<String>>);

impl Session {
    /// Whether one multi has room for them.
    pub(crate) fn fit_together(&self, requests: &[AcquireRequest]) -> bool {
        let room = requests.iter().map(|request| self.dir(&request.name).len() + 256);
        room.sum::<usize>() <= LONGEST
    }

    /// Takes all locks, or joins all queues, by one multi. All its nodes have one zxid, so in every
    /// queue they stand in the same order with those of any other multi: nobody can wait for each
    /// other in a circle.
    pub(crate) async fn enter_all(
        self: Arc<Self>,
        requests: Vec<AcquireRequest>,
    ) -> Result<Vec<Acquired>, Error> {
        let places: Vec<_> = requests.iter().map(|request| self.place(request)).collect();
        // No lease ends while it is being asked for.
        let asking: Vec<_> = places.iter().map(|place| place.wait()).collect();
        let answer = self.enter_places(&places, &requests).await;
        drop(asking);
        if answer.is_err() {
            // Those that have a node are released by the core; the others never come.
            for place in &places {
                if place.stage.try_lock().is_ok_and(|stage| matches!(*stage, Stage::New)) {
                    self.forget(place);
                }
            }
        }
        answer
    }

    async fn enter_places(
        self: &Arc<Self>,
        places: &[Arc<Place>],
        requests: &[AcquireRequest],
    ) -> Result<Vec<Acquired>, Error> {
        // The same claims come together only, and so in the same order.
        let mut stages = Vec::with_capacity(places.len());
        for place in places {
            stages.push(place.stage.lock().await);
        }
        if places.iter().any(|place| place.is_over()) {
            return Err(gone());
        }
        let since = Clock::Boot.now();
        let made: Vec<Made> = if stages.iter().all(|stage| matches!(**stage, Stage::New)) {
            self.create_all(places, requests).await.map_err(explain)?
        } else {
            self.catch_up().await.map_err(explain)?;
            let known = stages.iter().map(|stage| match &**stage {
                Stage::There(spot) => Ok((spot.clone(), None)),
                _ => Err(gone()),
            });
            known.collect::<Result<_, _>>()?
        };
        for (stage, (spot, _)) in stages.iter_mut().zip(&made) {
            **stage = Stage::There(spot.clone());
        }
        let standings = made
            .into_iter()
            .map(async |(spot, listed)| self.standing(&spot, listed).await.map_err(explain));
        let standings = try_join_all(standings).await?;
        let settling = places.iter().zip(&mut stages).zip(requests).zip(standings).map(
            async |(((place, stage), request), standing)| {
                self.settle(place, stage, standing, request, since).await
            },
        );
        // All are settled, whatever one comes to.
        join_all(settling).await.into_iter().collect()
    }

    /// Makes all nodes or none.
    async fn create_all(
        &self,
        places: &[Arc<Place>],
        requests: &[AcquireRequest],
    ) -> Result<Vec<Made>, ZkError> {
        let dirs: Vec<_> = requests.iter().map(|request| self.dir(&request.name)).collect();
        let node = CreateMode::EphemeralSequential.with_acls(self.acl.for_driver());
        let mut pause = std::time::Duration::from_millis(5);
        let mut has_dirs = false;
        loop {
            let mut nodes = self.client.new_multi_writer();
            let mut lists = self.client.new_multi_reader();
            for (request, dir) in requests.iter().zip(&dirs) {
                let path = format!("{dir}/{}", child(request.claim, request.mode));
                nodes.add_create(&path, Data::of(request.lease).text().as_bytes(), &node)?;
                lists.add_get_children(dir)?;
            }
            let sent = Clock::Boot.now();
            let made = tokio::time::timeout(self.timeout, nodes.commit());
            let listed = self.answer(lists.commit());
            let (made, listed) = futures_util::future::join(made, listed).await;
            let made = made.unwrap_or(Err(ZkError::Timeout.into()));
            match made {
                Ok(made) => {
                    self.heard(sent);
                    return self.spots(requests, &dirs, made, listed.unwrap_or_default()).await;
                }
                Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. })
                    if places.iter().all(|place| !place.is_over()) =>
                {
                    if has_dirs {
                        // They went again, or could not be made just now.
                        tokio::time::sleep(pause).await;
                    }
                    self.make_dirs(&dirs).await?;
                    has_dirs = true;
                }
                Err(error) => {
                    let error = ZkError::from(error);
                    if !is_passing(&error) || self.is_over() {
                        return Err(error);
                    }
                    if let Some(found) = self.find_all(requests, &dirs).await? {
                        return Ok(found);
                    }
                    if places.iter().any(|place| place.is_over()) {
                        // Nobody wants them any more, and they are not there.
                        return Err(error);
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(std::time::Duration::from_millis(500));
                }
            }
        }
    }

    /// Reads what a multi has made.
    async fn spots(
        &self,
        requests: &[AcquireRequest],
        dirs: &[String],
        made: Vec<MultiWriteResult>,
        listed: Vec<MultiReadResult>,
    ) -> Result<Vec<Made>, ZkError> {
        let created: Vec<_> = made
            .into_iter()
            .filter_map(|result| match result {
                MultiWriteResult::Create { path, stat } => Some((path, stat.czxid)),
                _ => None,
            })
            .collect();
        let Some((first, mut czxid)) = created.first().cloned() else {
            return Err(ZkError::UnexpectedError("a multi of creates made nothing".to_owned()));
        };
        if czxid <= 0 {
            // Servers before 3.8.2 leave it out (ZOOKEEPER-4026).
            let stat = self.read(|| self.client.check_stat(&first)).await?;
            czxid = stat.map(|stat| stat.czxid).ok_or(ZkError::NoNode)?;
        }
        let mut listed = listed.into_iter();
        let spots =
            created.into_iter().zip(requests).zip(dirs).map(|(((path, _), request), dir)| {
                let child = path.rsplit('/').next().unwrap_or_default().to_owned();
                let worn = Node::parse(&child).is_none_or(|node| !IN_ORDER.contains(&node.number));
                let list = listed.next().and_then(|result| match result {
                    MultiReadResult::Children { children } => Some(children),
                    _ => None,
                });
                let (dir, mode) = (dir.clone(), request.mode);
                (Spot { dir, child, czxid, mode, worn, watch: None }, list)
            });
        Ok(spots.collect())
    }

    /// Looks for nodes whose creation was not answered: all are there or none is.
    async fn find_all(
        &self,
        requests: &[AcquireRequest],
        dirs: &[String],
    ) -> Result<Option<Vec<Made>>, ZkError> {
        let searches = requests
            .iter()
            .zip(dirs)
            .map(async |(request, dir)| self.find_own(dir, request.claim, request.mode).await);
        let found: Vec<Option<Spot>> = try_join_all(searches).await?;
        if found.iter().all(Option::is_some) {
            return Ok(Some(found.into_iter().flatten().map(|spot| (spot, None)).collect()));
        }
        // Somebody has deleted some of them.
        let rest: Vec<Spot> = found.into_iter().flatten().collect();
        self.delete_all(&rest).await?;
        Ok(None)
    }

    async fn make_dirs(&self, dirs: &[String]) -> Result<(), ZkError> {
        let made = join_all(dirs.iter().map(|dir| self.make_dir(dir))).await;
        if made.iter().any(|made| matches!(made, Err(ZkError::NoNode))) {
            if self.root().is_empty() {
                return Err(ZkError::NoNode);
            }
            return self.make_root().await;
        }
        match made.into_iter().find_map(Result::err) {
            Some(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
