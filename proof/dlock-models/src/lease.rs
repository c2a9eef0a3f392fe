//! A lease with fencing tokens, and the resource that checks them.
//!
//! Models `dlock-core/src/hold/` (the local deadline of a holder, and renewal),
//! `dlock-core/src/vocabulary/fence.rs`, and the rule of tokens in `dlock-core/src/machine/mod.rs`.
//!
//! Two clients acquire, renew and release one lock. A request and its answer are two steps, with
//! any time between them; answers can be lost. A client's clock may miss a tick in each lease. A
//! holder that has just checked its guard may stop for any time before its write reaches the
//! resource. The store may lose its data once, or its clock may step back once.
//!
//! Left out: queues, and both faults of the store together, against which dlock guarantees nothing.
//! In a store that has lost its data the lock is free, so the model does not check exclusion there.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, ORDER, Tokens, breaks, holds};

const CLIENTS: usize = 2;
const LEASE: u8 = 3;
/// The number of ticks that a client's clock misses in a lease at most.
const MARGIN: u8 = 1;
/// The time at which the model ends.
const END: u8 = 4;

const NO_STALE_WRITE: &str = "no write of an older grant after one of a newer";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The resource refuses tokens that are smaller than the largest that it has seen.
    Fence,
    /// A token is no smaller than the store's time.
    ClockToken,
    /// A token is larger than the last one.
    AboveLast,
    /// The store's clock advances between two grants.
    FineClock,
    /// The local deadline is earlier than the end of the lease, by the largest difference of
    /// clocks.
    Margin,
    /// The local deadline counts from the sending of the request, not from the answer.
    SinceSent,
    /// A release ends only the grant that it names.
    ReleaseByOwner,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 7] = [
    (Rule::Fence, NO_STALE_WRITE),
    (Rule::ClockToken, ORDER),
    (Rule::AboveLast, ORDER),
    (Rule::FineClock, ORDER),
    (Rule::Margin, EXCLUSION),
    (Rule::SinceSent, EXCLUSION),
    (Rule::ReleaseByOwner, EXCLUSION),
];

#[derive(Default)]
struct Lease {
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// Whether no grant was made at the current time.
    fresh: bool,
    /// The grant in the store, and the end of its lease.
    held: Option<(u8, u8)>,
    last: u8,
    store_fault: StoreFault,
    grants: u8,
    /// All tokens, including those that the store has lost.
    tokens: Tokens<u8>,
    clients: [Client; CLIENTS],
    /// The largest token that the resource has seen.
    mark: u8,
    /// The newest grant whose holder has written.
    newest: u8,
    stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StoreFault {
    None,
    DataLost,
    ClockSetBack,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    deadline: LocalDeadline,
    renewal: Renewal,
    /// A write that has not reached the resource yet.
    write: Option<Grant>,
    /// The grant that a pending release names.
    release: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Sending,
    /// The store has granted the lock, and the answer is pending.
    Granted(Grant),
    Held(Grant),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Renewal {
    #[default]
    None,
    Sent(LocalDeadline),
    Kept(LocalDeadline),
}

/// A grant: its number in the order of grants, and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    number: u8,
    token: u8,
}

/// The number of ticks of its own clock for which a client may still rely on an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct LocalDeadline {
    left: u8,
    missed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A tick of time. The clocks of the clients in `missed` miss it.
    Tick {
        missed: [bool; CLIENTS],
    },
    LoseData,
    SetClockBack,
    Of(usize, Step),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Acquire,
    ServeAcquire,
    HearGrant,
    LoseGrant,
    Renew,
    ServeRenewal,
    HearRenewal,
    LoseRenewal,
    /// The client writes, because its guard is valid.
    Write,
    WriteArrives,
    Leave,
    ReleaseArrives,
}

impl Lease {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn deadline(&self) -> LocalDeadline {
        let margin = if self.has(Rule::Margin) { MARGIN } else { 0 };
        LocalDeadline { left: LEASE - margin, missed: false }
    }

    fn grant(&self, state: &mut State) -> Grant {
        let above = if self.has(Rule::AboveLast) { state.last + 1 } else { 1 };
        let token = if self.has(Rule::ClockToken) { above.max(state.now) } else { above };
        state.grants += 1;
        state.last = token;
        state.tokens.add(token);
        state.fresh = false;
        state.held = Some((state.grants, state.now + LEASE));
        Grant { number: state.grants, token }
    }

    fn step(&self, state: &mut State, at: usize, step: Step) {
        let mut client = state.clients[at];
        match (step, client.phase) {
            (Step::Acquire, _) => {
                client.phase = Phase::Sending;
                client.deadline = self.deadline();
            }
            (Step::ServeAcquire, _) => {
                let free = state.held.is_none_or(|(_, until)| state.now >= until);
                client.phase = match free {
                    true => Phase::Granted(self.grant(state)),
                    false => Phase::Idle,
                };
            }
            (Step::HearGrant, Phase::Granted(grant)) => {
                if !self.has(Rule::SinceSent) {
                    client.deadline = self.deadline();
                }
                client.phase = Phase::Held(grant);
            }
            (Step::Renew, _) => client.renewal = Renewal::Sent(self.deadline()),
            (Step::ServeRenewal, Phase::Held(grant)) => match (state.held, client.renewal) {
                (Some((number, until)), Renewal::Sent(deadline))
                    if number == grant.number && state.now < until =>
                {
                    state.held = Some((number, state.now + LEASE));
                    client.renewal = Renewal::Kept(deadline);
                }
                _ => client.phase = Phase::Idle,
            },
            (Step::HearRenewal, _) => {
                if let Renewal::Kept(deadline) = client.renewal {
                    client.deadline = deadline;
                }
                client.renewal = Renewal::None;
            }
            (Step::LoseRenewal, _) => client.renewal = Renewal::None,
            (Step::Write, Phase::Held(grant)) => client.write = Some(grant),
            (Step::WriteArrives, _) => {
                if let Some(grant) = client.write.take()
                    && (grant.token >= state.mark || !self.has(Rule::Fence))
                {
                    state.stale |= grant.number < state.newest;
                    state.newest = state.newest.max(grant.number);
                    state.mark = state.mark.max(grant.token);
                }
            }
            (Step::Leave, Phase::Held(grant)) => {
                client.release = Some(grant.number);
                client.phase = Phase::Idle;
            }
            (Step::ReleaseArrives, _) => {
                let named = client.release.take();
                let owns = state.held.map(|(number, _)| number) == named;
                if owns || !self.has(Rule::ReleaseByOwner) {
                    state.held = None;
                }
            }
            _ => client.phase = Phase::Idle,
        }
        if !matches!(client.phase, Phase::Held(_)) {
            client.renewal = Renewal::None;
        }
        if client.phase == Phase::Idle {
            client.deadline = LocalDeadline::default();
        }
        state.clients[at] = client;
    }
}

impl Client {
    fn is_valid(&self) -> bool {
        matches!(self.phase, Phase::Held(_)) && self.deadline.left > 0
    }

    fn steps(&self, state: &State, fine: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        match self.phase {
            Phase::Idle => steps.push(Step::Acquire),
            Phase::Sending if state.fresh || !fine => steps.push(Step::ServeAcquire),
            Phase::Sending => {}
            Phase::Granted(_) if self.deadline.left > 0 => {
                steps.extend([Step::HearGrant, Step::LoseGrant]);
            }
            Phase::Granted(_) => steps.push(Step::LoseGrant),
            Phase::Held(_) => {
                if self.release.is_none() {
                    steps.push(Step::Leave);
                }
                if self.is_valid() && self.write.is_none() {
                    steps.push(Step::Write);
                }
                match self.renewal {
                    Renewal::None if self.is_valid() => steps.push(Step::Renew),
                    Renewal::None => {}
                    Renewal::Sent(_) => steps.extend([Step::ServeRenewal, Step::LoseRenewal]),
                    // The answer to the renewal of a lost guard has no effect.
                    Renewal::Kept(_) if self.is_valid() => {
                        steps.extend([Step::HearRenewal, Step::LoseRenewal]);
                    }
                    Renewal::Kept(_) => steps.push(Step::LoseRenewal),
                }
            }
        }
        if self.write.is_some() {
            steps.push(Step::WriteArrives);
        }
        if self.release.is_some() {
            steps.push(Step::ReleaseArrives);
        }
        steps
    }

    /// Whether the client's clock may miss one more tick.
    fn may_miss(&self) -> bool {
        let renewal = match self.renewal {
            Renewal::None => LocalDeadline::default(),
            Renewal::Sent(deadline) | Renewal::Kept(deadline) => deadline,
        };
        self.deadline.left + renewal.left > 0 && !self.deadline.missed && !renewal.missed
    }

    fn tick(&mut self, missed: bool) {
        self.deadline.tick(missed);
        if let Renewal::Sent(deadline) | Renewal::Kept(deadline) = &mut self.renewal {
            deadline.tick(missed);
        }
    }
}

impl LocalDeadline {
    fn tick(&mut self, missed: bool) {
        match missed {
            true => self.missed |= self.left > 0,
            false => self.left = self.left.saturating_sub(1),
        }
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            fresh: true,
            held: None,
            last: 0,
            store_fault: StoreFault::None,
            grants: 0,
            tokens: Tokens::default(),
            clients: [Client::default(); CLIENTS],
            mark: 0,
            newest: 0,
            stale: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            for missed in [[false, false], [false, true], [true, false], [true, true]] {
                if (0..CLIENTS).all(|at| !missed[at] || state.clients[at].may_miss()) {
                    actions.push(Action::Tick { missed });
                }
            }
        }
        if state.store_fault == StoreFault::None && state.grants > 0 {
            actions.extend([Action::LoseData, Action::SetClockBack]);
        }
        for (at, client) in state.clients.iter().enumerate() {
            let steps = client.steps(state, self.has(Rule::FineClock));
            actions.extend(steps.into_iter().map(|step| Action::Of(at, step)));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick { missed } => {
                state.now += 1;
                state.fresh = true;
                for (client, missed) in state.clients.iter_mut().zip(missed) {
                    client.tick(missed);
                }
            }
            Action::LoseData => {
                (state.held, state.last) = (None, 0);
                state.store_fault = StoreFault::DataLost;
            }
            Action::SetClockBack => {
                state.now -= 1;
                state.store_fault = StoreFault::ClockSetBack;
            }
            Action::Of(at, step) => self.step(&mut state, at, step),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let valid = state.clients.iter().filter(|client| client.is_valid()).count();
                valid < 2 || state.store_fault == StoreFault::DataLost
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(NO_STALE_WRITE, |_, state: &State| !state.stale),
            Property::sometimes("three grants", |_, state: &State| state.grants == 3),
            Property::sometimes("a late write", |_, state: &State| {
                let late = |client: &Client| client.write.is_some_and(|w| w.token < state.mark);
                state.clients.iter().any(late)
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("lease", rule, Lease { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("lease", Lease::default(), 2_000_000);
}
