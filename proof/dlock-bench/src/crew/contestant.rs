//! The contestants.

use serde::Serialize;

use super::{Crew, Java, Talk, peers::Peer, relays::Relays};
use crate::{
    Failure,
    own::{Flavour, Own},
    store::{Server, Store},
};

/// The role of a contestant in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// The minimum cost.
    Baseline,
    /// dlock itself.
    Dlock,
    /// Another lock.
    Peer,
    /// Another lock, which is granted in the order of requests.
    FairPeer,
}

/// A contestant.
#[derive(Clone, Debug)]
pub(crate) enum Contestant {
    /// A subject of this executable, with options for the URL.
    Own(Own, &'static str),
    /// A lock of another project.
    Peer(Peer),
}

impl Contestant {
    /// Returns all variants of dlock over a store.
    pub(crate) fn dlocks(store: Store) -> Vec<Self> {
        let mut all = vec![Self::Own(Own::Dlock, "")];
        if store == Store::Postgres {
            all.push(Self::Own(Own::Dlock, "dlock.advisory=true"));
        }
        all
    }

    /// Returns dlock with the shortest retention of what free locks leave in a store. Databases
    /// keep it for at least twice the response timeout. The other stores have no such option.
    pub(crate) fn forgetful(store: Store) -> Self {
        let option = match store {
            Store::Memory | Store::Redis | Store::Zk | Store::Etcd => "",
            Store::Sqlite => "dlock.retention=2s",
            Store::Postgres | Store::Mysql => "dlock.retention=4s&dlock.response_timeout=2s",
        };
        Self::Own(Own::Dlock, option)
    }

    /// Returns dlock with options that suit a lease of some seconds: on ZooKeeper and etcd a session
    /// of this length, on databases an answer within it.
    pub(crate) fn hurried(store: Store, seconds: u64) -> Self {
        let option = match (store, seconds) {
            (Store::Zk | Store::Etcd, 1) => "dlock.session_timeout=1s",
            (Store::Zk | Store::Etcd, 2) => "dlock.session_timeout=2s",
            (Store::Zk | Store::Etcd, 5) => "dlock.session_timeout=5s",
            (Store::Zk | Store::Etcd, 10) => "dlock.session_timeout=10s",
            (Store::Zk | Store::Etcd, 30) => "dlock.session_timeout=30s",
            (Store::Postgres | Store::Mysql, 1) => "dlock.response_timeout=1s",
            (Store::Postgres | Store::Mysql, 2) => "dlock.response_timeout=2s",
            _ => "",
        };
        Self::Own(Own::Dlock, option)
    }

    /// Returns the name in the report.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Own(own, "") => own.name().to_owned(),
            Self::Own(own, option) => {
                format!("{}, {}", own.name(), option.trim_end_matches("=true"))
            }
            Self::Peer(peer) => peer.name.to_owned(),
        }
    }

    /// Returns the role in the comparison.
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Own(Own::Dlock, _) => Role::Dlock,
            Self::Own(..) => Role::Baseline,
            Self::Peer(peer) if peer.fair => Role::FairPeer,
            Self::Peer(_) => Role::Peer,
        }
    }

    /// Returns the subject, if it is one of this executable.
    pub(crate) fn own(&self) -> Option<Own> {
        match self {
            Self::Own(own, _) => Some(*own),
            Self::Peer(_) => None,
        }
    }

    /// Whether it gets faster for some seconds after its start, because a compiler optimizes it.
    pub(crate) fn is_slow_to_warm(&self) -> bool {
        matches!(self, Self::Peer(peer) if peer.is_java())
    }

    /// Starts its processes, each over its relay if there are relays.
    pub(crate) fn start(
        &self,
        server: &Server,
        size: usize,
        flavour: Flavour,
        relays: Option<&Relays>,
    ) -> Result<Crew, Failure> {
        let over = |url: String, place| relays.map_or(url.clone(), |all| all.route(&url, place));
        match self {
            Self::Own(own, option) => {
                let url = match own {
                    Own::Dlock => with_option(server.dlock_url(), option),
                    _ => server.url(),
                };
                Crew::of((0..size).map(|place| own.command(&over(url.clone(), place), flavour)))
            }
            Self::Peer(peer) if peer.is_java() => {
                let started = (0..size).map(|place| Java::start(&over(server.url(), place)));
                let members = started.map(|java| Ok(Box::new(java?) as Box<dyn Talk>));
                Ok(Crew::of_others(members.collect::<Result<_, Failure>>()?))
            }
            Self::Peer(peer) => {
                Crew::of((0..size).map(|place| peer.command(&over(server.url(), place), flavour)))
            }
        }
    }
}

fn with_option(url: String, option: &str) -> String {
    match (option, url.contains('?')) {
        ("", _) => url,
        (option, true) => format!("{url}&{option}"),
        (option, false) => format!("{url}?{option}"),
    }
}
