//! The connection of a session to one member, and the choice of the member.
//!
//! A session talks to one member at a time, since the proof of a beat, local reads and watches need
//! the same member. A member is taken if it is no learner, belongs to the same cluster, and answers a
//! vote. It is given up when a keepalive or a vote is late.
//!
//! Each address of each host is a candidate, and names are resolved again each time. Candidates are
//! dialled in random order, each a while after the one before if that has not failed, and the first
//! that will do is taken. So one that is silent costs little time.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dlock_core::{Certainty, Clock, Error, ErrorKind};
use futures_util::{StreamExt, stream::FuturesUnordered};
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

/// The part of the time for one candidate after which the next one is dialled as well.
const STAGGER: u32 = 8;

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
        let mut last: Option<Error> = None;
        let mut note = |error: Error| {
            // An error that names a cause is of more use than "no connection".
            if last.is_none() || error.kind() != ErrorKind::Unavailable {
                last = Some(error);
            }
        };
        let mut resolving: FuturesUnordered<_> =
            hosts.iter().map(|host| resolve(host, each)).collect();
        let (mut waiting, mut dialling) = (Vec::new(), FuturesUnordered::new());
        let mut due = Instant::now();
        loop {
            if (dialling.is_empty() || Instant::now() >= due) && !waiting.is_empty() {
                let (host, address) = waiting.swap_remove(rand::random_range(0..waiting.len()));
                dialling.push(Self::to(host, address, config, cluster, each));
                due = Instant::now() + each / STAGGER;
            }
            tokio::select! {
                Some(found) = resolving.next() => match found {
                    Ok(found) => waiting.extend(found),
                    Err(failure) => note(failure.into()),
                },
                Some(link) = dialling.next() => match link {
                    Ok(link) => return Ok(link),
                    Err(error) => note(error),
                },
                () = tokio::time::sleep_until(due), if !waiting.is_empty() => {}
                else => break,
            }
        }
        Err(last.unwrap_or_else(crate::error::no_answer))
    }

    async fn to(
        host: &str,
        address: SocketAddr,
        config: &EtcdConfig,
        cluster: Option<u64>,
        each: Duration,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + each;
        let (client, header, status) = dial(host, Some(address), &config.access, deadline).await?;
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
        let (keys, deadline) = (Keys::below(&config.root), Instant::now() + each);
        let asked: Result<((Header, _), ()), Failure> = tokio::try_join!(
            client.call(vote(&keys), deadline),
            client.check_watches(keys.vote().into(), deadline)
        );
        let ((voted, _), ()) = asked.map_err(|failure| match failure.kind() {
            FailureKind::Token if config.access.login.is_none() => {
                failure.with_kind(FailureKind::WrongUser)
            }
            _ => failure,
        })?;
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

/// Returns the addresses of `host:port`.
async fn resolve(
    host: &str,
    within: Duration,
) -> Result<impl Iterator<Item = (&str, SocketAddr)> + use<'_>, Failure> {
    let failed = |why: String| {
        let why = format!("{host:.80} has no address: {why}");
        Failure::new(FailureKind::Disconnected, Certainty::NotApplied, why)
    };
    match tokio::time::timeout(within, tokio::net::lookup_host(host)).await {
        Ok(Ok(found)) => {
            let found: Vec<_> = found.collect();
            Ok(found.into_iter().map(move |address| (host, address)))
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("no answer from the name server".to_owned())),
    }
}

/// Returns a request that is voted on and changes nothing: it deletes a key that never exists. Unlike
/// a transaction, every version takes it when its quota is used up.
pub(crate) fn vote(keys: &Keys) -> DeleteRangeRequest {
    DeleteRangeRequest { key: keys.vote().into(), ..Default::default() }
}
