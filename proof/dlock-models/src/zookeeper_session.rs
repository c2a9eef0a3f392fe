//! How long a client may rely on its ZooKeeper session: from a request that was answered, and that
//! a later write confirms.
//!
//! Models `dlock-zk/src/proof.rs`, and the servers as in the sources of Apache ZooKeeper:
//! `SessionTrackerImpl`, `LearnerSessionTracker`, `Learner`, `LearnerHandler`, `Leader`,
//! `PrepRequestProcessor`.
//!
//! The leader ends a session that nothing has *touched* for a session timeout. Only these touch a
//! session at the leader: its creation, a reconnect, and the report of a follower. A follower sends
//! a report when the leader pings it, every half tick. The report names the sessions that the
//! follower has heard since its last report. A write that a follower forwards does **not** touch
//! its session: the leader only checks that it has not ended the session. So the leader may commit
//! a write and end its session at once. A new leader gives each session its whole timeout.
//!
//! The rule: a *pulse* is a request that a server has answered; it may be a read. A *beat* is a
//! write that is committed. If a pulse was answered a quarter of a session timeout before the beat
//! was sent, then the follower's report of the pulse reached the leader before the beat did. So the
//! beat proves that the session lives for a session timeout after the pulse was sent. The creation
//! of the session proves a session timeout after it was sent, without a beat.
//!
//! One client uses one follower. It sends reads and writes at any time, so it may also stop for any
//! time. Requests, answers, and the messages from the follower to the leader are delayed without
//! limit. Each connection keeps their order, and reports and forwarded writes share a connection.
//! The client may reconnect, and the leader may change: the session then gets its whole timeout,
//! and messages that are under way are lost. The leader ends the session at its deadline or at any
//! time after it. From then on another client may hold the lock. The model has no last tick,
//! because all its times are relative.
//!
//! Assumptions: a follower sends a report at least every half tick, so the leader's pings are on
//! time and arrive without delay. A session timeout has two ticks or more, so half a tick is a
//! quarter of a timeout or less. The difference may be delay: the model has none. Clocks run
//! equally fast; the model `lease` has the margin for that. An observer that is connected to a
//! follower or another observer (`observerMasterPort`) is not covered, since its reports take two
//! steps of half a tick each.
//!
//! Left out: the pings of the driver, which only touch the session more often; the rounding of the
//! leader's deadline, which only makes it later; and a client that is connected to the leader,
//! where each request touches the session.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, breaks, holds};

/// The session timeout.
const TIMEOUT: u8 = 8;
/// Half a tick: the time between two reports.
const HALF_TICK: u8 = TIMEOUT / 4;
/// The time from the answer to a pulse to the beat that confirms it.
const GAP: usize = TIMEOUT as usize / 4;
/// The number of requests without an answer.
const PENDING: usize = 2;

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A beat proves the timeout of an earlier pulse, not half a timeout from the beat itself.
    Pulse,
    /// The pulse is answered a quarter of a timeout before the beat is sent. Without the rule, one
    /// unit of time less is enough.
    Gap,
    /// The timeout counts from the sending of the pulse, not from its answer.
    SinceSent,
    /// Only a committed write is a beat, not a read that a follower answers.
    Committed,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 4] = [
    (Rule::Pulse, EXCLUSION),
    (Rule::Gap, EXCLUSION),
    (Rule::SinceSent, EXCLUSION),
    (Rule::Committed, EXCLUSION),
];

struct Lifetime {
    without: Option<Rule>,
}

/// All times are the ticks that are left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// From then on, the leader may end the session.
    deadline: u8,
    /// Whether the leader has ended the session.
    ended: bool,
    /// The time until the follower's next report.
    report: u8,
    /// Whether the follower has heard of the session since its last report.
    heard: bool,
    /// From the client to the follower.
    requests: Vec<Letter>,
    /// From the follower to the leader.
    forwarded: Vec<Letter>,
    /// From the follower to the client.
    answers: Vec<Letter>,
    /// The timeout since the best pulse that was answered now, one tick ago, and so on. The last
    /// entry is for all earlier pulses.
    pulses: [u8; GAP + 1],
    /// The client relies on the session until then.
    proven: u8,
}

/// A request and its answer, or a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Letter {
    /// A read, with what is left of the session timeout since it was sent. The follower answers it.
    Read(u8),
    /// A write, with the time that it proves once it is committed. The model does not use it as a
    /// pulse: a read that is sent and answered together with it has that effect.
    Write(u8),
    /// The follower has heard of the session.
    Report,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Read,
    Write,
    /// The next request reaches the follower.
    FollowerHears,
    /// The next message of the follower reaches the leader.
    LeaderHears,
    /// The next answer reaches the client.
    ClientHears,
    /// The client reconnects, or the servers have a new leader.
    Reconnect,
    /// The leader ends the session.
    End,
}

impl Lifetime {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns the time that a beat proves if it is sent now.
    fn proof(&self, state: &State) -> u8 {
        let gap = if self.has(Rule::Gap) { GAP } else { GAP - 1 };
        match self.has(Rule::Pulse) {
            true => state.pulses[gap..].iter().copied().max().unwrap_or(0),
            false => TIMEOUT / 2,
        }
    }

    fn follower_hears(&self, state: &mut State) {
        let request = state.requests.remove(0);
        state.heard = true;
        match request {
            Letter::Write(_) if self.has(Rule::Committed) => state.forwarded.push(request),
            _ => state.answers.push(request),
        }
    }

    fn client_hears(&self, state: &mut State) {
        match state.answers.remove(0) {
            Letter::Read(left) => {
                let left = if self.has(Rule::SinceSent) { left } else { TIMEOUT };
                state.pulses[0] = state.pulses[0].max(left);
            }
            Letter::Write(proof) => state.proven = state.proven.max(proof),
            Letter::Report => {}
        }
    }
}

impl State {
    fn leader_hears(&mut self) {
        match self.forwarded.remove(0) {
            Letter::Report => self.deadline = TIMEOUT,
            request => self.answers.push(request),
        }
    }

    fn tick(&mut self) {
        self.pulses[GAP] = self.pulses[GAP].max(self.pulses[GAP - 1]);
        self.pulses.copy_within(..GAP - 1, 1);
        self.pulses[0] = 0;
        let wires = [&mut self.requests, &mut self.forwarded, &mut self.answers];
        let sent = wires.into_iter().flatten().filter_map(Letter::time);
        let own = [&mut self.deadline, &mut self.report, &mut self.proven];
        for time in own.into_iter().chain(&mut self.pulses).chain(sent) {
            *time = time.saturating_sub(1);
        }
        if self.report == 0 {
            self.report = HALF_TICK;
            self.send_report();
        }
    }

    /// A report is the first action at its time. So half a tick passes at most from any later
    /// action at that time to the next report.
    fn send_report(&mut self) {
        // Of two reports in a row, the model keeps the first.
        if self.heard && self.forwarded.last() != Some(&Letter::Report) {
            self.forwarded.push(Letter::Report);
        }
        self.heard = false;
    }

    fn reconnect(&mut self) {
        for wire in [&mut self.requests, &mut self.forwarded, &mut self.answers] {
            wire.clear();
        }
        self.heard = false;
        self.deadline = TIMEOUT;
    }

    /// Only answers that are under way matter after the end. A later write is refused, and a later
    /// read is a pulse without a beat.
    fn end(&mut self) {
        self.ended = true;
        self.requests.clear();
        self.forwarded.clear();
        self.heard = false;
        self.pulses = [0; GAP + 1];
    }

    /// Forgets times that are no later than the one until which the client relies on the session.
    /// They will never matter. This makes equal states of those that differ in nothing else.
    fn forget(&mut self) {
        let wires = [&mut self.requests, &mut self.forwarded, &mut self.answers];
        let sent = wires.into_iter().flatten().filter_map(Letter::time);
        for time in sent.chain(&mut self.pulses).filter(|time| **time <= self.proven) {
            *time = 0;
        }
    }

    fn pending(&self) -> usize {
        let wires = [&self.requests, &self.forwarded, &self.answers];
        wires.into_iter().flatten().filter(|letter| **letter != Letter::Report).count()
    }
}

impl Letter {
    fn time(&mut self) -> Option<&mut u8> {
        match self {
            Self::Read(time) | Self::Write(time) => Some(time),
            Self::Report => None,
        }
    }
}

impl Model for Lifetime {
    type State = State;
    type Action = Action;

    /// The session was just created. The follower's next report is due at any time.
    fn init_states(&self) -> Vec<State> {
        let state = |report| State {
            deadline: TIMEOUT,
            ended: false,
            report,
            heard: false,
            requests: Vec::new(),
            forwarded: Vec::new(),
            answers: Vec::new(),
            pulses: [0; GAP + 1],
            proven: TIMEOUT,
        };
        (1..=HALF_TICK).map(state).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        if !state.answers.is_empty() {
            actions.push(Action::ClientHears);
        }
        if !state.requests.is_empty() {
            actions.push(Action::FollowerHears);
        }
        if state.ended {
            // A request that is sent now proves nothing.
            return;
        }
        if !state.forwarded.is_empty() {
            actions.push(Action::LeaderHears);
        }
        if state.pending() < PENDING {
            actions.push(Action::Read);
            if self.proof(state) > state.proven {
                actions.push(Action::Write);
            }
        }
        actions.push(Action::Reconnect);
        if state.deadline == 0 {
            actions.push(Action::End);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Read => state.requests.push(Letter::Read(TIMEOUT)),
            Action::Write => state.requests.push(Letter::Write(self.proof(before))),
            Action::FollowerHears => self.follower_hears(&mut state),
            Action::LeaderHears => state.leader_hears(),
            Action::ClientHears => self.client_hears(&mut state),
            Action::Reconnect => state.reconnect(),
            Action::End => state.end(),
        }
        state.forget();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| !state.ended || state.proven == 0),
            Property::sometimes("a beat proves a longer life", |_, state: &State| {
                state.answers.iter().any(|answer| matches!(answer, Letter::Write(1..)))
            }),
            Property::sometimes("an answer to a beat after the end", |_, state: &State| {
                state.ended && state.answers.contains(&Letter::Write(0))
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("zookeeper_session", rule, Lifetime { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("zookeeper_session", Lifetime { without: None }, 1_300_000);
}
