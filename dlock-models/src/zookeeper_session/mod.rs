//! How long a client may rely on its ZooKeeper session: from a request that was answered, confirmed
//! by a later write.
//!
//! Models the rule of `dlock-zk/src/session.rs`, and the servers as in the sources of Apache
//! ZooKeeper (`SessionTrackerImpl`, `LearnerSessionTracker`, `Learner`, `LearnerHandler`,
//! `PrepRequestProcessor`, `Leader`).
//!
//! The leader ends a session when it has not been *touched* for the session timeout. Only these
//! touch a session at the leader: its creation, a reconnect, and the report of a follower. A
//! follower sends a report when the leader pings it, which is every half tick. The report names the
//! sessions that the follower has heard since the last report. A write that a follower forwards
//! does **not** touch its session: the leader commits it if the session has not ended. So a write
//! may be committed just before the leader ends the session.
//!
//! The rule: a *pulse* is a request that a server has answered, which may be a read. A *beat* is a
//! write. A committed beat proves that the leader has the report of every pulse that was answered a
//! quarter of the session timeout before the beat was sent. So the session lives for a session
//! timeout after the sending of that pulse. The creation of the session proves the same for itself.
//!
//! One client is connected to one follower. It sends reads and writes at any time, so it may also
//! stop for any time. Requests, answers, and the messages from the follower to the leader are
//! delayed without limit, but each connection keeps their order. Reports and forwarded writes share
//! a connection. The client may reconnect, and the leader may change: the session then gets its
//! whole timeout, and messages that are under way are lost. The leader ends a session at its
//! deadline or at any time after it. From then on another client may hold the lock.
//!
//! Assumptions: a follower sends a report every half tick, so the leader's ping takes no time. A
//! session timeout has two ticks or more, so half a tick is a quarter of a timeout or less. Clocks
//! run equally fast; for the margin see the model `lease`.
//!
//! Left out: the pings of the driver, which only touch the session more often; the rounding of the
//! leader's deadline, which only moves it later; and a client that is connected to the leader
//! itself, where each request touches the session. The model has no end: all times are relative.

mod space;

use crate::check::{EXCLUSION, breaks, holds};

/// The session timeout.
const TIMEOUT: u8 = 8;
/// Half a tick: the time between two reports.
const HALF_TICK: u8 = TIMEOUT / 4;
/// How long before a beat a pulse is answered, to be proved by it.
const GAP: usize = TIMEOUT as usize / 4;
/// The number of requests without an answer.
const PENDING: usize = 2;

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A beat proves the timeout of an earlier pulse, and not half a timeout from the beat itself.
    Pulse,
    /// A pulse is answered a quarter of a timeout before the beat is sent, not one tick of the
    /// model less.
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
    requests: Vec<Request>,
    /// From the follower to the leader.
    letters: Vec<Letter>,
    /// From the follower to the client.
    answers: Vec<Request>,
    /// The timeout since the sending of the best pulse that was answered now, one tick ago, and so
    /// on. The last entry is for all earlier pulses.
    pulses: [u8; GAP + 1],
    /// The timeout that the creation of the session proves.
    created: u8,
    /// The timeout that the beats prove.
    proven: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    kind: Kind,
    /// The timeout since its sending.
    left: u8,
    /// The timeout that it proves once it is committed.
    proof: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Letter {
    /// The follower has heard of the session.
    Report,
    Forwarded(Request),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Send(Kind),
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

    /// Returns the timeout that a beat proves if it is sent now.
    fn proof(&self, state: &State) -> u8 {
        let gap = if self.has(Rule::Gap) { GAP } else { GAP - 1 };
        match self.has(Rule::Pulse) {
            true => state.pulses[gap..].iter().copied().max().unwrap_or(0),
            false => TIMEOUT / 2,
        }
    }

    fn client_hears(&self, state: &mut State) {
        let answer = state.answers.remove(0);
        let pulse = if self.has(Rule::SinceSent) { answer.left } else { TIMEOUT };
        state.pulses[0] = state.pulses[0].max(pulse);
        if answer.kind == Kind::Write || !self.has(Rule::Committed) {
            state.proven = state.proven.max(answer.proof);
        }
    }
}

impl State {
    fn tick(&mut self) {
        let messages = self.requests.iter_mut().chain(&mut self.answers);
        let forwarded = self.letters.iter_mut().filter_map(|letter| match letter {
            Letter::Forwarded(request) => Some(request),
            Letter::Report => None,
        });
        for request in messages.chain(forwarded) {
            request.left = request.left.saturating_sub(1);
            request.proof = request.proof.saturating_sub(1);
        }
        self.pulses[GAP] = self.pulses[GAP].max(self.pulses[GAP - 1]);
        self.pulses.copy_within(0..GAP - 1, 1);
        self.pulses[0] = 0;
        let times = [&mut self.deadline, &mut self.created, &mut self.proven, &mut self.report];
        for time in times.into_iter().chain(&mut self.pulses) {
            *time = time.saturating_sub(1);
        }
        if self.report == 0 {
            self.report = HALF_TICK;
            self.send_report();
        }
    }

    /// At the beginning of a tick, since a report is due half a tick after the last one, and a
    /// request that follows it in the same tick of the model is later.
    fn send_report(&mut self) {
        // The leader would hear two reports in a row. It hears one of them.
        if self.heard && self.letters.last() != Some(&Letter::Report) {
            self.letters.push(Letter::Report);
        }
        self.heard = false;
    }

    fn follower_hears(&mut self) {
        let request = self.requests.remove(0);
        self.heard = true;
        match request.kind {
            Kind::Read => self.answers.push(request),
            Kind::Write => self.letters.push(Letter::Forwarded(request)),
        }
    }

    /// The leader ignores a session that it has ended.
    fn leader_hears(&mut self) {
        match self.letters.remove(0) {
            _ if self.ended => {}
            Letter::Report => self.deadline = TIMEOUT,
            Letter::Forwarded(request) => self.answers.push(request),
        }
    }

    fn reconnect(&mut self) {
        (self.requests, self.letters, self.answers) = Default::default();
        self.heard = false;
        self.deadline = TIMEOUT;
    }

    fn pending(&self) -> usize {
        let forwarded = self.letters.iter().filter(|letter| **letter != Letter::Report).count();
        self.requests.len() + forwarded + self.answers.len()
    }

    fn believes(&self) -> bool {
        self.created > 0 || self.proven > 0
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
    holds("zookeeper_session", Lifetime { without: None }, 1_000);
}
