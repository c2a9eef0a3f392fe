//! The connection of a session to one member, and the choice of the member.
//!
//! A session talks to one member at a time, since the proof of a beat, local reads and watches need
//! the same member. A member is taken if it is no learner, belongs to the same cluster, and answers a
//! vote. It is given up when a keepalive or a vote is late.
//!
//! Names are resolved again each time. The hosts are dialled in random order, and so are the addresses
//! of each host: the next one when one has failed, or a while after the one before. The first member
//! that will do is taken. So one that does not answer costs little time.

use std::{
    fmt,
    net::SocketAddr,
    ops::ControlFlow,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use dlock_core::{Certainty, Clock, Error, ErrorKind, race};
use rand::seq::SliceRandom;
use tokio::time::Instant;

use crate::{
    client::{
        Client, DeleteRangeRequest, Failure, FailureKind, Header, LeaseGrantRequest,
        StatusResponse, dial,
    },
    config::EtcdConfig,
    error::no_answer,
    key::Keys,
};

/// The part of the time for one address after which the next one is dialled as well.
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
        race_hosts(hosts, each, |host, at| Self::to(host, at, config, cluster, each)).await
    }

    async fn to(
        host: String,
        address: SocketAddr,
        config: &EtcdConfig,
        cluster: Option<u64>,
        each: Duration,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + each;
        let (client, header, status) = dial(&host, address, &config.access, deadline).await?;
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

/// Tries these hosts in their order, each at all its addresses, and returns the first success. Each
/// name may take this long to resolve.
pub(crate) async fn race_hosts<T, F>(
    hosts: Vec<String>,
    each: Duration,
    to: impl Fn(String, SocketAddr) -> F + Send + Sync,
) -> Result<T, Error>
where
    T: Send,
    F: Future<Output = Result<T, Error>> + Send,
{
    let (to, pause) = (&to, each / STAGGER);
    let attempts = hosts.into_iter().map(|host| async move {
        let addresses = resolve(&host, each).await?.into_iter();
        let attempts = addresses.map(|at| to(host.clone(), at));
        race(attempts, pause, judge).await.unwrap_or_else(|| Err(no_answer()))
    });
    race(attempts, pause, judge).await.unwrap_or_else(|| Err(no_answer()))
}

/// Keeps an error that names a cause, since it is of more use than "no connection".
fn judge(kept: Option<Error>, error: Error) -> ControlFlow<Error, Error> {
    match kept {
        Some(kept) if error.kind() == ErrorKind::Unavailable => ControlFlow::Continue(kept),
        _ => ControlFlow::Continue(error),
    }
}

/// Returns the addresses of `host:port`, in random order.
async fn resolve(host: &str, within: Duration) -> Result<Vec<SocketAddr>, Failure> {
    let failed = |why: String| {
        let why = format!("{host:.80} has no address: {why}");
        Failure::new(FailureKind::Disconnected, Certainty::NotApplied, why)
    };
    match tokio::time::timeout(within, tokio::net::lookup_host(host)).await {
        Ok(Ok(found)) => {
            let mut found: Vec<_> = found.collect();
            found.shuffle(&mut rand::rng());
            Ok(found)
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

/// A version such as 3.5.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u16, u16, u16);

impl Version {
    /// Parses the version that a member reports. Returns `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (plain, _) = text.split_once(['-', '+']).unwrap_or((text, ""));
        let mut parts = plain.splitn(3, '.').map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next()??))
    }

    /// Returns whether dlock can't use it.
    pub(crate) fn is_too_old(self) -> bool {
        self < Self(3, 4, 0)
    }

    /// Returns the faults of this version that matter to locks, with the version that repairs them.
    pub(crate) fn faults(self) -> Vec<(&'static str, Self)> {
        let all = [
            (
                "members may disagree on data after a crash under load",
                [Self(3, 4, 0), Self(3, 5, 3)],
            ),
            ("a watch may miss events after a compaction", [Self(3, 4, 36), Self(3, 5, 18)]),
            ("a keepalive may confirm a lease that has ended", [Self(3, 4, 38), Self(3, 5, 23)]),
        ];
        let mut faults = Vec::new();
        for (what, repaired) in all {
            let same_minor = repaired.into_iter().find(|Self(_, minor, _)| *minor == self.1);
            faults.extend(same_minor.filter(|repaired| self < *repaired).map(|by| (what, by)));
        }
        faults
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (text, too_old, faults) in [
            ("3.3.27", true, 0),
            ("3.4.23", false, 2),
            ("3.4.36", false, 1),
            ("3.5.1", false, 3),
            ("3.5.18-rc.1", false, 1),
            ("3.5.23", false, 0),
            ("3.7.2", false, 0),
        ] {
            let version = Version::parse(text).unwrap();
            assert_eq!(version.is_too_old(), too_old, "{text}");
            assert_eq!(version.faults().len(), faults, "{text}");
        }
        for text in ["", "3", "3.5", "x.y.z", "not decided"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
