//! A Redis server that restarts with older data, and the restart guard.
//!
//! Models `check_guard` in `dlock-redis/src/link/node.rs`, the roles of requests in
//! `link/window.rs`, and `frozen` in `dlock-redis/src/scripts/lock.lua`.
//!
//! Three clients want one lock: one exclusively, and perhaps shared later; one exclusively; and one
//! shared. Only the first renews its lease. The server may restart once, with the data that it had at some earlier time, or with
//! none. Each request is one step. Its answer may be lost, and then the client sends it again. A
//! grant to a waiter is announced by a message, which may be lost, too. An operator may release a
//! claim that the store shows and on which no client relies.
//!
//! Left out: requests under way, which are the models `redis_late` and `redis_hand_off`; several
//! names, whose scripts grant each name by the same rules; and the masters of a quorum, which are
//! the model `quorum`. There, too, each master runs these scripts.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, breaks, holds};

const CLAIMS: usize = 3;
/// The claim that waits for a shared lock.
const READER: usize = 2;
const LEASE: u8 = 2;
/// The time at which the model ends.
const END: u8 = 4;

const NO_GRANT: &str = "nothing is granted within the guard";
const HAS_CLIENT: &str = "each holder in the store has a client that relies on it";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// An acquire is refused within the guard.
    Acquire,
    /// The poll of a waiter is refused within the guard.
    Poll,
    /// A renewal grants nothing to others within the guard.
    Renewal,
    /// A downgrade grants nothing to others within the guard.
    Downgrade,
    /// A release grants nothing to others within the guard.
    Release,
    /// A cancel grants nothing to others within the guard.
    Cancel,
    /// An operator's release grants nothing within the guard.
    ForceRelease,
    /// The guard is at least as long as every lease.
    LongGuard,
    /// The guard counts from the last start of the server, not from the first that a client saw.
    LastStart,
}

/// The rules, and the properties that are violated without each of them.
pub const RULES: [(Rule, &str); 16] = [
    (Rule::Acquire, NO_GRANT),
    (Rule::Acquire, EXCLUSION),
    (Rule::Poll, NO_GRANT),
    (Rule::Poll, EXCLUSION),
    (Rule::Renewal, NO_GRANT),
    (Rule::Renewal, HAS_CLIENT),
    (Rule::Downgrade, NO_GRANT),
    (Rule::Downgrade, HAS_CLIENT),
    (Rule::Release, NO_GRANT),
    (Rule::Release, HAS_CLIENT),
    (Rule::Cancel, NO_GRANT),
    (Rule::Cancel, HAS_CLIENT),
    (Rule::ForceRelease, NO_GRANT),
    (Rule::ForceRelease, HAS_CLIENT),
    (Rule::LongGuard, EXCLUSION),
    (Rule::LastStart, EXCLUSION),
];

struct RedisGuard {
    without: Option<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    store: Store,
    /// The data with which the server would restart.
    disk: Store,
    saved: bool,
    /// The time of the restart.
    restarted: Option<u8>,
    clients: [Client; CLAIMS],
    /// Whether a claim was granted within the guard.
    is_early: bool,
}

/// The data of the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Store {
    holders: Vec<Holder>,
    /// The waiting claims in their order, and the ends of their leases.
    queue: Vec<(usize, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    claim: usize,
    shared: bool,
    ends: u8,
    /// Whether it was granted after the restart.
    is_new: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Client {
    #[default]
    Idle,
    Waits,
    /// It relies on the lock until then.
    Holds {
        until: u8,
        shared: bool,
    },
    /// It sends its release until that is answered.
    Leaves {
        held: bool,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Acquire,
    Poll,
    Renew,
    Downgrade,
    /// It releases its claim, or cancels it.
    Leave,
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask {
        claim: usize,
        verb: Verb,
        /// Whether the answer arrives.
        is_answered: bool,
        /// Whether the messages about grants to others arrive.
        are_notified: bool,
    },
    Save,
    Restart,
    Tick,
}

impl RedisGuard {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns whether a client considers the guard over.
    fn is_over(&self, state: &State) -> bool {
        let Some(restarted) = state.restarted.filter(|_| self.has(Rule::LastStart)) else {
            return true;
        };
        let length = if self.has(Rule::LongGuard) { LEASE } else { LEASE - 1 };
        state.time >= restarted + length
    }

    /// Returns whether the request may grant locks.
    fn may_grant(&self, state: &State, verb: Verb, client: Client) -> bool {
        let rule = match verb {
            Verb::Acquire => Rule::Acquire,
            Verb::Poll => Rule::Poll,
            Verb::Renew => Rule::Renewal,
            Verb::Downgrade => Rule::Downgrade,
            Verb::Leave if matches!(client, Client::Waits | Client::Leaves { held: false }) => {
                Rule::Cancel
            }
            Verb::Leave => Rule::Release,
            Verb::Force => Rule::ForceRelease,
        };
        self.is_over(state) || !self.has(rule)
    }

    /// Runs one request. `None` if it is refused.
    fn ask(
        &self,
        state: &mut State,
        (claim, verb): (usize, Verb),
        answered: bool,
        notified: bool,
    ) -> Option<()> {
        let may_grant = self.may_grant(state, verb, state.clients[claim]);
        if matches!(verb, Verb::Acquire | Verb::Poll) && !may_grant {
            return None;
        }
        let ends = state.time + LEASE;
        state.expire();
        let is_shared = matches!(state.clients[claim], Client::Holds { shared: true, .. });
        let holds = match verb {
            Verb::Acquire | Verb::Poll => state.keep(claim, ends, false),
            // A renewal states the mode, so it repeats a downgrade that the store has forgotten.
            Verb::Renew => state.keep(claim, ends, is_shared),
            Verb::Downgrade => state.keep(claim, ends, true),
            Verb::Leave | Verb::Force => {
                state.store.holders.retain(|holder| holder.claim != claim);
                state.store.queue.retain(|(waiter, _)| *waiter != claim);
                false
            }
        };
        if verb == Verb::Acquire && !holds && !state.store.waits(claim) {
            state.store.queue.push((claim, ends));
        }
        let granted = if may_grant { state.promote() } else { Vec::new() };
        for other in granted.iter().filter(|other| **other != claim && notified) {
            if state.clients[*other] == Client::Waits {
                state.clients[*other] = Client::Holds { until: ends, shared: *other == READER };
            }
        }
        let holds = holds || granted.contains(&claim);
        let client = &mut state.clients[claim];
        *client = match (verb, *client) {
            (Verb::Force, client) => client,
            // From its first release on, the client does not rely on its claim.
            (Verb::Leave, _) if answered => Client::Over,
            (Verb::Leave, Client::Waits) => Client::Leaves { held: false },
            (Verb::Leave, Client::Holds { .. }) => Client::Leaves { held: true },
            (Verb::Acquire | Verb::Poll, _) if answered && holds => {
                Client::Holds { until: ends, shared: claim == READER }
            }
            (Verb::Acquire, _) => Client::Waits,
            (Verb::Downgrade, Client::Holds { until, .. }) => {
                let until = if answered && holds { ends } else { until };
                Client::Holds { until, shared: true }
            }
            (Verb::Renew, Client::Holds { shared, .. }) if answered && holds => {
                Client::Holds { until: ends, shared }
            }
            // The claim is lost, and the client releases it.
            (Verb::Renew, Client::Holds { .. }) if answered => Client::Leaves { held: true },
            (_, client) => client,
        };
        Some(())
    }
}

impl State {
    /// Removes the claims whose leases have ended.
    fn expire(&mut self) {
        let now = self.time;
        self.store.holders.retain(|holder| holder.ends > now);
        self.store.queue.retain(|(_, ends)| *ends > now);
    }

    /// Extends the lease of a claim, perhaps in the weaker mode. Returns whether it holds the lock.
    fn keep(&mut self, claim: usize, ends: u8, weaker: bool) -> bool {
        for (waiter, until) in &mut self.store.queue {
            if *waiter == claim {
                *until = ends;
            }
        }
        let Some(holder) = self.store.holders.iter_mut().find(|holder| holder.claim == claim)
        else {
            return false;
        };
        holder.ends = holder.ends.max(ends);
        holder.shared |= weaker;
        true
    }

    /// Grants the lock to the first claims of the queue that fit.
    fn promote(&mut self) -> Vec<usize> {
        let mut granted = Vec::new();
        while let Some((claim, _)) = self.store.queue.first().copied() {
            let shared = claim == READER;
            let fits = self.store.holders.iter().all(|holder| shared && holder.shared);
            if !fits {
                break;
            }
            self.store.queue.remove(0);
            let (ends, is_new) = (self.time + LEASE, self.restarted.is_some());
            self.store.holders.push(Holder { claim, shared, ends, is_new });
            self.is_early |= self.is_guarded();
            granted.push(claim);
        }
        granted
    }

    /// Returns whether a lease may be running that the server has forgotten.
    fn is_guarded(&self) -> bool {
        self.restarted.is_some_and(|restarted| self.time < restarted + LEASE)
    }

    fn relies_on(&self, claim: usize) -> Option<bool> {
        match self.clients[claim] {
            Client::Holds { until, shared } if self.time < until => Some(shared),
            _ => None,
        }
    }
}

impl Store {
    fn waits(&self, claim: usize) -> bool {
        self.queue.iter().any(|(waiter, _)| *waiter == claim)
    }
}

impl Model for RedisGuard {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for claim in 0..CLAIMS {
            let is_in_store = state.store.holders.iter().any(|holder| holder.claim == claim);
            let verbs: &[Verb] = match state.clients[claim] {
                Client::Idle => &[Verb::Acquire],
                Client::Waits => &[Verb::Poll, Verb::Leave],
                Client::Holds { shared: false, .. } if claim == 0 => {
                    &[Verb::Renew, Verb::Downgrade, Verb::Leave]
                }
                Client::Holds { .. } if claim == 0 => &[Verb::Renew, Verb::Leave],
                Client::Holds { .. } => &[Verb::Leave],
                Client::Leaves { .. } => &[Verb::Leave],
                Client::Over if is_in_store => &[Verb::Force],
                Client::Over => &[],
            };
            for verb in verbs {
                for (is_answered, are_notified) in
                    [(true, true), (true, false), (false, true), (false, false)]
                {
                    actions.push(Action::Ask { claim, verb: *verb, is_answered, are_notified });
                }
            }
        }
        let is_empty = state.store.holders.is_empty() && state.store.queue.is_empty();
        if !state.saved && state.restarted.is_none() && !is_empty {
            actions.push(Action::Save);
        }
        if state.restarted.is_none() {
            actions.push(Action::Restart);
        }
        if state.time < END {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ask { claim, verb, is_answered, are_notified } => {
                self.ask(&mut state, (claim, verb), is_answered, are_notified)?;
            }
            Action::Save => (state.disk, state.saved) = (state.store.clone(), true),
            Action::Restart => {
                state.store = std::mem::take(&mut state.disk);
                (state.restarted, state.saved) = (Some(state.time), true);
            }
            Action::Tick => state.time += 1,
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_GRANT, |_, state: &State| !state.is_early),
            Property::always(HAS_CLIENT, |model: &Self, state: &State| {
                let granted = state.store.holders.iter().filter(|holder| holder.is_new);
                let mut live = granted.filter(|holder| holder.ends > state.time);
                live.all(|holder| match state.clients[holder.claim] {
                    Client::Holds { .. } | Client::Leaves { .. } => true,
                    // Its next poll finds the grant, unless it is refused.
                    client => client == Client::Waits && model.may_grant(state, Verb::Poll, client),
                })
            }),
            Property::always(EXCLUSION, |_, state: &State| {
                let modes: Vec<_> = (0..CLAIMS).filter_map(|c| state.relies_on(c)).collect();
                modes.len() < 2 || modes.iter().all(|shared| *shared)
            }),
            Property::sometimes("a claim is granted after the guard", |_, state: &State| {
                state.store.holders.iter().any(|holder| holder.is_new)
            }),
            Property::sometimes("a lease outlives the server's memory", |_, state: &State| {
                let is_forgotten = |claim: &usize| {
                    state.relies_on(*claim).is_some()
                        && state.store.holders.iter().all(|holder| holder.claim != *claim)
                };
                state.restarted.is_some() && (0..CLAIMS).any(|claim| is_forgotten(&claim))
            }),
            Property::sometimes("two clients share the lock", |_, state: &State| {
                state.relies_on(0) == Some(true) && state.relies_on(READER) == Some(true)
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_guard", rule, RedisGuard { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("redis_guard", RedisGuard { without: None }, 10_000);
}
