//! draft
mod rules;
mod space;
mod steps;
mod store;

use self::rules::{LATE, PERMITS, SESSIONS, Setup, VIEWS};
pub use self::rules::{RULES, Rule};
use crate::check::{Tokens, breaks, holds};

const CLIENTS: usize = 3;
/// The number of permits. A claim for a mutex takes all of them.
const PERMIT_COUNT: u8 = 2;

const NOBODYS: &str = "no key of nobody";

struct EtcdQueue {
    setup: &'static Setup,
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The number of writes to the keys of the name.
    rev: u8,
    /// The keys of the name in the order of their creation. A deleted key stays here as long as a
    /// member may show it.
    keys: Vec<Key>,
    sessions: [Session; CLIENTS],
    clients: [Client; CLIENTS],
    /// The requests that their clients have given up and that may still take effect, sorted.
    late: Vec<Letter>,
    /// Whether the server refuses to use more space.
    full: bool,
    faults: Faults,
    tokens: Tokens<u8>,
}

/// The number of faults that are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Faults {
    /// Requests without an answer.
    late: u8,
    /// Deletions of waiters' keys by hand.
    broken: u8,
    /// Connections to another member.
    failovers: u8,
    /// Sessions that end.
    ends: u8,
    /// Times at which the server runs out of space.
    full: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: usize,
    claim: u8,
    /// The session that the lease belongs to.
    session: u8,
    created: u8,
    /// The revision at which a granted claim for permits put it again, or 0.
    marked: u8,
    deleted: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Session {
    /// The current session of these clients.
    number: u8,
    /// The last session that has ended for the store.
    dead: u8,
    /// The mod revision of the session's marker, or 0 if there is none. This is the epoch.
    marker: u8,
    /// The number of times that a marker was put.
    puts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Letter {
    Create {
        client: usize,
        claim: u8,
        session: u8,
        epoch: u8,
    },
    /// `created` is the create revision with which the key is compared, if it is.
    Delete {
        client: usize,
        claim: u8,
        created: Option<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    /// The number of times that the client has wanted the lock.
    wants: u8,
    claim: u8,
    /// Whether the caller still wants the lock.
    wanted: bool,
    /// Whether a plain deletion of this claim's key may still take effect.
    plain: bool,
    /// The largest revision that the client has read.
    seen: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    Unsure,
    /// The client has ended the epoch.
    Searching,
    /// The client knows what to watch. `blind` if it will not read when the watch is set.
    Placed {
        own: u8,
        watched: Watched,
        blind: bool,
    },
    /// The client reads at its member, at a revision of at least `least`. It knows of all events up
    /// to the revision `from`.
    Reading {
        own: u8,
        watch: Option<Watch>,
        least: u8,
    },
    Watching {
        own: u8,
        watch: Watch,
    },
    /// `marks` if the client has yet to put its key again.
    Held {
        own: u8,
        marks: bool,
    },
    Leaving {
        own: u8,
        was_held: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    watched: Watched,
    /// Events up to this revision were told, or are before the watch.
    from: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Watched {
    /// All keys of the name.
    Range,
    /// The key with this create revision.
    Key(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Want(usize),
    Create(usize),
    CreateUnanswered(usize),
    CreateLost(usize),
    CreateLate(usize),
    /// The server is out of space.
    CreateRefused(usize),
    PutMarker(usize),
    /// The client ends the epoch.
    Raise(usize),
    Search(usize),
    /// The member begins to watch after this revision.
    Watch(usize, u8),
    /// The member reads at this revision.
    Read(usize, u8),
    Event(usize),
    /// The granted claim puts its key again.
    Mark(usize),
    Cancel(usize),
    Leave(usize),
    Delete(usize),
    /// The deletion is not answered, and takes effect later. The client sends it again.
    DeleteLate(usize),
    HandIn(Letter),
    /// Somebody deletes the key of a waiter, or all keys of its session at one revision.
    Break {
        client: usize,
        all: bool,
    },
    /// The client connects to another member.
    FailOver(usize),
    /// The session ends for its clients.
    EndSession(usize),
    /// The session ends for the store, which deletes its keys at one revision.
    SessionEnds(usize),
    RunFull,
    FreeSpace,
}

impl Phase {
    fn own(self) -> Option<u8> {
        match self {
            Self::Placed { own, .. }
            | Self::Reading { own, .. }
            | Self::Watching { own, .. }
            | Self::Held { own, .. }
            | Self::Leaving { own, .. } => Some(own),
            _ => None,
        }
    }

    fn waits(self) -> bool {
        matches!(self, Self::Placed { .. } | Self::Reading { .. } | Self::Watching { .. })
    }

    fn holds(self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("etcd::queue", rule, EtcdQueue { setup: rule.setup(), without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    for (setup, least) in [(&LATE, 1), (&VIEWS, 1), (&SESSIONS, 1), (&PERMITS, 1)] {
        holds("etcd::queue", EtcdQueue { setup, without: None }, least);
    }
}
