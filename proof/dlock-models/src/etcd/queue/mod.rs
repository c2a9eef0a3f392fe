//! The queue of a name: keys with leases, in the order of their create revisions.
//!
//! Models `dlock-etcd/src/acquire.rs`, `create.rs`, `epoch.rs`, `queue.rs`, `standing.rs`, `wait.rs` and `release.rs`.
//!
//! # The store
//!
//! Each write to the keys of the name has the next revision. A claim is one key, and its position in
//! the queue is its create revision. A member reports events in order, and answers its reads from what it has
//! applied. Both lag behind, and the reads more than the events: after the event of a revision, a
//! read may still show an earlier one. So the model lets each read choose a revision, from the one
//! that the client demands to the current one. A watch begins at the member's current revision, and
//! goes by the name of a key, which later claims of the same client may have, too.
//!
//! A request without an answer was applied, or was lost, or takes effect at any later time, in any
//! order. When the server is out of space, it refuses to put keys; it still deletes them.
//!
//! # The protocol, in the order of its steps
//!
//! 1. Create: one transaction puts the claim's key if there is none, and if the marker of the
//!    session has the mod revision that the client knows. It also reads the queue. The marker's mod
//!    revision is the epoch of the session.
//! 2. If the answer is missing or is a refusal, the client ends the epoch, by putting the marker
//!    again, or by deleting it if puts are refused. Creations of the old epoch have no effect after
//!    that. The client searches for its key, and continues with the result. A deleted marker has
//!    the mod revision 0, and so does the next one, so the client puts a marker before it creates.
//! 3. A waiter watches the key before its own, and reads the queue and its own key as soon as the
//!    watch is set, and again after each event. It asks for the event's revision or a later one.
//!    If its own key is not there, the claim is over. If the key before its own is the only one, it
//!    watches its own key, too. Then the end of the key before it is the grant, without a read, if
//!    its own watch has reported nothing.
//! 4. Another member may be behind the creation of the claim. The client sets its watch there, since
//!    the watch at the other member may stay open and report nothing, for example if that member is
//!    cut off from the others. Then it reads the queue at the largest revision that it has seen, or a
//!    later one. It drops events that are not later than the creation of its claim.
//! 5. The first waiter for permits watches the whole range. The others watch the key before their
//!    own. A granted claim puts its own key again if there may be claims behind it, which is the
//!    event for the next one.
//! 6. A release deletes the key, and is sent again until it is answered. The next claim of the
//!    client in this session has the same key, its *slot*, unless a deletion was not answered.
//! 7. A session ends for its clients first. Later the store deletes all its keys at one revision.
//!    The client may repeat its claim in the next session while the old key is still there.
//!
//! Somebody may delete the key of a waiter, or all keys of a session that wait. For a holder this
//! is a loss of which the watch on its own key notifies it; the model leaves it out.
//!
//! # Sources
//!
//! The guide of etcd on its API guarantees and on transactions. Its source for the marker and the
//! reads (`server/etcdserver/apply`, `server/storage/mvcc/watchable_store.go`): watchers are
//! notified before the write's revision is visible to reads. Tests on 3.4.23, 3.5.1 and 3.7.2 for
//! what is refused without space, and for reads that are older than events.
//!
//! # What the mutants show
//!
//! | without | what happens |
//! |---|---|
//! | `Epoch`, `SeeThrough` | a late creation leaves a key that nobody deletes, and all others wait for it |
//! | `RaiseWhenFull` | the same: the creation takes effect when there is space again |
//! | `MarkerFirst` | the same: a creation that compares with 0 is not stopped by deleting the marker |
//! | `FreshSlot` | a late deletion deletes the key of the next claim in the same slot, which holds the lock by then |
//! | `OwnLease` | the client holds the lock by a key of its earlier session, which the store then deletes |
//! | `EventBound` | the read shows the deleted predecessor, whose event does not come a second time |
//! | `OnlyOne` | a waiter that is cancelled lets the one behind it in beside the holder |
//! | `OwnFirst`, `OwnKey` | a waiter without a key is granted the lock when its predecessor leaves |
//! | `ReadAgain` | the predecessor was deleted before the new watch |
//! | `LaterEvents` | the event is the deletion of an earlier key with the name of the predecessor |
//! | `NewWatch` | the waiter stays with the watch at a member that is cut off |
//! | `SeenBound` | the new member does not show the client's own key yet; the client takes another claim, and the key remains |
//! | `FirstReads` | a release between the predecessor's grant and the new watch is missed |
//! | `Mark`, `MarkFound` | the second waiter is not notified that it is the first now |
//!
//! Left out: readers, downgrades, `FailIfBusy` and multi-locks; how a client detects in time that
//! its session may have ended (see [`local_deadline`](super::local_deadline)); and the regular read once per
//! session timeout, so in this model only a watch can wake a waiter. The mark of a grant is refused
//! when the server is out of space. Then the next waiter for permits waits for the regular read, so
//! the semaphore is checked with enough space.

mod rules;
mod steps;

use stateright::{Model, Property};

use self::rules::{ENDS, LATE, LATE_PERMITS, PERMITS, RETURNS, REUSE, Setup, VIEWS};
use crate::check::{EXCLUSION, ORDER, Tokens, WAKES, breaks, holds};

pub use self::rules::{RULES, Rule};

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
    slot: u8,
    /// The session that the lease belongs to. The key has it, too.
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
        slot: u8,
        session: u8,
        epoch: u8,
    },
    /// `session` is the one that is part of the slot, if it is.
    Delete {
        client: usize,
        slot: u8,
        session: Option<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    /// The number of times that the client has wanted the lock.
    wants: u8,
    /// The slot of its claims.
    slot: u8,
    /// Whether the caller still wants the lock.
    wanted: bool,
    /// Whether a deletion of its key may still take effect.
    retired: bool,
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
    /// The client knows what to watch, at a member that has applied the revision `applied`. `blind`
    /// if it will not read when the watch is set.
    Placed {
        own: u8,
        watched: Watched,
        applied: u8,
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
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watch {
    watched: Watched,
    /// Events up to this revision were reported, or are before the watch.
    from: u8,
    /// A read has shown, after this watch and that of the own key were set, that the watched key is
    /// the only one ahead.
    sure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Watched {
    /// All keys of the name.
    Range,
    /// The keys with this name.
    Key(Name),
}

/// The name of a key. A client may create several such keys, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    client: usize,
    slot: u8,
    session: u8,
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
    /// The client connects to another member, which has applied this revision.
    FailOver(usize, u8),
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
            | Self::Leaving { own } => Some(own),
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

impl Model for EtcdQueue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            wants: 0,
            slot: 1,
            wanted: false,
            retired: false,
            seen: 0,
            phase: Phase::Idle,
        };
        vec![State {
            rev: 0,
            keys: Vec::new(),
            sessions: [Session { number: 1, dead: 0, marker: 1, puts: 1 }; CLIENTS],
            clients: [client; CLIENTS],
            late: Vec::new(),
            full: false,
            faults: self.setup.faults,
            tokens: Tokens::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..CLIENTS {
            self.actions_of(state, at, actions);
            if state.faults.broken > 0 {
                self.breaks_of(state, at, actions);
            }
            let mut clients = (0..CLIENTS).filter(|other| self.setup.sessions[*other] == at);
            let busy = clients.any(|client| state.clients[client].phase != Phase::Idle);
            if state.faults.ends > 0 && busy {
                actions.push(Action::EndSession(at));
            }
            if self.is_dying(state, at) {
                actions.push(Action::SessionEnds(at));
            }
        }
        actions.extend(state.late.iter().map(|letter| Action::HandIn(*letter)));
        if state.full {
            actions.push(Action::FreeSpace);
        } else if state.faults.full > 0 {
            actions.push(Action::RunFull);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.act(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |model: &Self, state: &State| {
                let held = (0..CLIENTS).filter(|at| state.clients[*at].phase.holds());
                held.map(|at| model.setup.needs[at]).sum::<u8>() <= PERMIT_COUNT
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(NOBODYS, |model: &Self, state: &State| {
                let mut keys = state.keys.iter().filter(|key| key.deleted.is_none());
                keys.all(|key| {
                    let client = state.clients[key.client];
                    let looks = matches!(client.phase, Phase::Unsure | Phase::Searching);
                    let known = looks && client.slot == key.slot;
                    let dying = key.session < model.session(state, key.client).number;
                    known || dying || client.phase.own() == Some(key.created)
                })
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
        ]
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
    let setups = [
        (&LATE, 1_130_000),
        (&VIEWS, 170_000),
        (&REUSE, 900),
        (&ENDS, 62_000),
        (&RETURNS, 87_000),
        (&PERMITS, 40_000),
        (&LATE_PERMITS, 43_000),
    ];
    for (setup, least) in setups {
        holds("etcd::queue", EtcdQueue { setup, without: None }, least);
    }
}

impl EtcdQueue {
    fn actions_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let client = state.clients[at];
        let faults = state.faults;
        match client.phase {
            Phase::Idle if client.wants < self.setup.wants[at] => actions.push(Action::Want(at)),
            Phase::Asking => {
                let ready = self.session(state, at).marker != 0 || !self.has(Rule::MarkerFirst);
                actions.extend(self.own_step(state, at));
                if ready && state.full {
                    actions.push(Action::CreateRefused(at));
                }
                if ready && faults.late > 0 {
                    actions.extend([Action::CreateLost(at), Action::CreateLate(at)]);
                    if !state.full {
                        actions.push(Action::CreateUnanswered(at));
                    }
                }
            }
            Phase::Placed { applied, .. } => {
                actions.extend((applied..=state.rev).map(|from| Action::Watch(at, from)));
            }
            Phase::Reading { least, .. } => {
                actions.extend((least..=state.rev).map(|rev| Action::Read(at, rev)));
            }
            Phase::Held { .. } => {
                actions.extend(self.own_step(state, at));
                actions.push(Action::Leave(at));
            }
            Phase::Leaving { .. } => {
                actions.push(Action::Delete(at));
                if faults.late > 0 {
                    actions.push(Action::DeleteLate(at));
                }
            }
            _ => actions.extend(self.own_step(state, at)),
        }
        if client.wanted && !client.phase.holds() {
            actions.push(Action::Cancel(at));
        }
        if faults.failovers > 0 && client.phase.waits() {
            actions.extend((0..=state.rev).map(|applied| Action::FailOver(at, applied)));
        }
    }

    fn breaks_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let there = state.keys.iter().any(|key| key.client == at && key.deleted.is_none());
        if !there || !self.is_queued(state, at) {
            return;
        }
        actions.push(Action::Break { client: at, all: false });
        let slots = self.setup.sessions;
        if (0..CLIENTS).all(|other| slots[other] != slots[at] || self.is_queued(state, other)) {
            actions.push(Action::Break { client: at, all: true });
        }
    }
}
