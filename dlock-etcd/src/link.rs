//! The connection of a session to one member, and the choice of the member.
//!
//! A session talks to one member at a time, since the proof of a beat, local reads and watches need
//! the same member. Members are tried in random order, with exponential backoff and jitter. A member
//! is taken if it is no learner, belongs to the same cluster, and answers a vote. It is given up
//! when a keepalive or a vote is late.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dlock_core::{Certainty, Clock, Error, ErrorKind};
use rand::seq::SliceRandom;
use tokio::time::Instant;

use crate::{
    client::{
        Client, DeleteRangeRequest, Failure, FailureKind, Header, LeaseGrantRequest,
        StatusResponse, dial,
    },
    config::EtcdConfig,
    key::Keys,
    version::Version,
};

/// A connection to one member.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    /// Unique in this process.
    pub(crate) number: u64,
    pub(crate) cluster: u64,
    /// The term in the answer to its first vote.
    pub(crate) term: u64,
    pub(crate) status: StatusResponse,
}

/// A lease that was granted.
pub(crate) struct Granted {
    pub(crate) id: i64,
    pub(crate) ttl: Duration,
    /// The time at which it was requested.
    pub(crate) began: dlock_core::Instant,
}

impl Link {
    /// Connects to the first member that will do. With `cluster`, it has to be of this cluster.
    pub(crate) async fn open(
        config: &EtcdConfig,
        cluster: Option<u64>,
        each: Duration,
    ) -> Result<Self, Error> {
        let mut hosts = config.hosts.clone();
        hosts.shuffle(&mut rand::rng());
        let mut last = None;
        for host in &hosts {
            match Self::to(host, config, cluster, each).await {
                Ok(link) => return Ok(link),
                // An error that names a cause is of more use than "no connection".
                Err(error) if error.kind() == ErrorKind::Unavailable && last.is_some() => {}
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(crate::error::no_answer))
    }

    async fn to(
        host: &str,
        config: &EtcdConfig,
        cluster: Option<u64>,
        each: Duration,
    ) -> Result<Self, Error> {
        let (client, header, status) = dial(host, &config.access, Instant::now() + each).await?;
        if status.is_learner {
            return Err(Failure::new(
                FailureKind::Learner,
                Certainty::NotApplied,
                format!("{host} is a learner"),
            )
            .into());
        }
        if Version::parse(&status.version).is_some_and(|version| version.is_too_old()) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{host} runs etcd {:.40}: use etcd 3.4 or later", status.version),
            ));
        }
        if cluster.is_some_and(|cluster| cluster != header.cluster_id) {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("{host} belongs to another cluster: give the members of one cluster only"),
            ));
        }
        let vote = vote(&Keys::below(&config.root));
        let (voted, _): (Header, _) = client.call(vote, Instant::now() + each).await?;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (cluster, term) = (header.cluster_id, voted.raft_term);
        Ok(Self { client, number, cluster, term, status })
    }

    /// Requests a lease.
    pub(crate) async fn grant(&self, ttl: Duration, within: Duration) -> Result<Granted, Failure> {
        let began = Clock::Boot.now();
        let request = LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX) };
        let (_, granted) = self.client.call(request, Instant::now() + within).await?;
        let ttl = Duration::from_secs(granted.ttl.unsigned_abs());
        Ok(Granted { id: granted.id, ttl, began })
    }
}

/// Returns a request that is voted on and changes nothing: it deletes a key that never exists. Unlike
/// a transaction, every version takes it when its quota is used up.
pub(crate) fn vote(keys: &Keys) -> DeleteRangeRequest {
    DeleteRangeRequest { key: keys.vote().into(), ..Default::default() }
}
