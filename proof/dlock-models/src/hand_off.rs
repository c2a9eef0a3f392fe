//! The local hand-off between the tasks of a process.
//!
//! Models `dlock-core/src/hold/local_queue/`, `dlock-core/src/acquire/handoff.rs` and
//! `dlock-core/src/engine/release.rs`.
//!
//! Three tasks of a process want one lock, and another process wants it too. A hold with a block of
//! tokens is handed from task to task, in the steps of `release::hand_off`: take its next token,
//! remove the next task from the local queue, and send the turn. Between any two of these steps
//! tasks may cancel, with or without a pending turn, and the hold may be lost.
//!
//! Left out: the flags outside of the queue's mutex, for which `enter` and `pass_leader_role` are
//! single steps here; the longest time of local hand-offs, which ends a series of them as the last
//! token does; and the store's faults.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, ORDER, Tokens, WAKES, breaks, holds};

const TASKS: usize = 3;
/// The number of times that each task wants the lock.
const TURNS: [u8; TASKS] = [2, 2, 1];
/// The tokens of a block: one more than the hand-offs in a series.
const BLOCK: u8 = 3;

const ONE_LEADER: &str = "one leads at a time";
const FAIR: &str = "the store's queue gets its turn";
const OWNED: &str = "a hold has somebody who lets it go";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A turn that its task does not take is handed off to the next task.
    PassOn,
    /// Each hand-off takes the next token.
    NextToken,
    /// The receiver of a hold checks whether the hold was lost in between.
    CheckHold,
    /// Only the task that ends a hold passes the leader role to the next task.
    LeadOnce,
    /// A hold is handed off until its tokens are used up, and no longer.
    Bound,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 6] = [
    (Rule::PassOn, WAKES),
    (Rule::PassOn, OWNED),
    (Rule::NextToken, ORDER),
    (Rule::CheckHold, EXCLUSION),
    (Rule::LeadOnce, ONE_LEADER),
    (Rule::Bound, FAIR),
];

#[derive(Default)]
struct HandOff {
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tasks: [Task; TASKS],
    queue: Vec<usize>,
    busy: bool,
    /// The hold of this process in the store, even if it is already lost locally.
    hold: Hold,
    /// The holder and the waiters in the store.
    store: Option<Client>,
    waits: Vec<Client>,
    other: Other,
    last: u8,
    tokens: Tokens<u8>,
    /// The number of hand-offs since the other process began to wait.
    passed: u8,
    losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Process,
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Hold {
    number: u8,
    running: bool,
    used: u8,
    end: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Other {
    #[default]
    Idle,
    Waiting,
    Held,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Task {
    turns: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Queued,
    /// A turn is in the task's channel.
    Handed {
        hold: u8,
        token: u8,
    },
    Offered,
    /// The task sends a request to the store for the process.
    Leading,
    /// `is_valid` until the task is notified that the hold is lost.
    Held {
        hold: u8,
        is_valid: bool,
    },
    /// The task has taken the next token.
    Passing {
        hold: u8,
        token: u8,
    },
    /// The task has removed the next task from the local queue.
    Sending {
        hold: u8,
        token: u8,
        to: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Want(usize),
    /// The task stops waiting, or never takes its turn.
    Cancel(usize),
    Take(usize),
    HandOff(usize),
    /// The hold has been handed off for the longest allowed time.
    Release(usize),
    PopNext(usize),
    Send(usize),
    LoseHold,
    /// The lease of a lost hold expires in the store.
    LeaseEnds,
    OtherAcquires,
    OtherLeaves,
}

impl HandOff {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Takes the next token, if the hold may be handed off again.
    fn hand_off(&self, state: &mut State, at: usize, hold: u8) {
        let runs = state.runs(hold);
        let left = state.hold.used < state.hold.end || !self.has(Rule::Bound);
        if !(runs && left && !state.queue.is_empty()) {
            return self.release(state, at, hold);
        }
        if self.has(Rule::NextToken) {
            state.hold.used += 1;
            state.last = state.last.max(state.hold.used);
        }
        let token = state.hold.used;
        state.tasks[at].phase = Phase::Passing { hold, token };
    }

    fn pop_next(&self, state: &mut State, at: usize, hold: u8, token: u8) {
        if !state.runs(hold) || state.queue.is_empty() {
            return self.release(state, at, hold);
        }
        let to = state.queue.remove(0);
        state.tasks[at].phase = Phase::Sending { hold, token, to };
    }

    fn send(&self, state: &mut State, at: usize, turn: (u8, u8), to: usize) {
        let (hold, token) = turn;
        if state.tasks[to].phase != Phase::Queued {
            // The task has cancelled: try the next one, unless the hold was lost.
            state.tasks[at].phase = Phase::Passing { hold, token };
            return;
        }
        state.tasks[to].phase = Phase::Handed { hold, token };
        state.passed += u8::from(state.other == Other::Waiting && state.runs(hold));
        state.finish(at);
    }

    /// Ends the hold, releases it at the store, and passes the leader role to the next task.
    fn release(&self, state: &mut State, at: usize, hold: u8) {
        let ended = state.end(hold);
        if state.store == Some(Client::Process) && state.hold.number == hold {
            state.store = None;
            state.promote();
        }
        state.finish(at);
        if ended || !self.has(Rule::LeadOnce) {
            state.pass_leader_role();
        }
    }

    fn cancel(&self, state: &mut State, at: usize) {
        let phase = state.tasks[at].phase;
        state.finish(at);
        match phase {
            Phase::Handed { hold, .. } if self.has(Rule::PassOn) => {
                state.tasks[at].turns -= 1;
                state.tasks[at].phase = Phase::Held { hold, is_valid: false };
            }
            Phase::Offered if self.has(Rule::PassOn) => state.pass_leader_role(),
            Phase::Leading => {
                state.waits.retain(|who| *who != Client::Process);
                state.pass_leader_role();
            }
            _ => {}
        }
    }

    fn take(&self, state: &mut State, at: usize) {
        match state.tasks[at].phase {
            Phase::Handed { hold, token } => {
                if state.runs(hold) || !self.has(Rule::CheckHold) {
                    state.tokens.add(token);
                    state.tasks[at].phase = Phase::Held { hold, is_valid: true };
                } else {
                    // The task continues to wait, at the end of the local queue.
                    state.tasks[at].phase = Phase::Idle;
                    state.enter(at);
                }
            }
            Phase::Offered => state.make_leader(at),
            _ => {}
        }
    }
}

impl State {
    fn runs(&self, hold: u8) -> bool {
        self.hold.number == hold && self.hold.running
    }

    /// Ends a hold. Returns whether it was running.
    fn end(&mut self, hold: u8) -> bool {
        let runs = self.runs(hold);
        if runs {
            self.hold.running = false;
        }
        runs
    }

    fn finish(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        (task.turns, task.phase) = (task.turns + 1, Phase::Idle);
    }

    fn enter(&mut self, at: usize) {
        if self.busy {
            self.tasks[at].phase = Phase::Queued;
            self.queue.push(at);
        } else {
            self.busy = true;
            self.make_leader(at);
        }
    }

    /// Sends a request to the store.
    fn make_leader(&mut self, at: usize) {
        self.tasks[at].phase = Phase::Leading;
        self.waits.push(Client::Process);
        self.promote();
    }

    /// Makes the next task the local leader. Without a next task, the local queue is no longer
    /// busy.
    fn pass_leader_role(&mut self) {
        while !self.queue.is_empty() {
            let next = self.queue.remove(0);
            if self.tasks[next].phase == Phase::Queued {
                self.tasks[next].phase = Phase::Offered;
                return;
            }
        }
        self.busy = false;
    }

    /// The store grants the lock to the first in its queue.
    fn promote(&mut self) {
        if self.store.is_some() || self.waits.is_empty() {
            return;
        }
        let first = self.waits.remove(0);
        self.store = Some(first);
        let token = self.last + 1;
        match first {
            Client::Other => {
                self.last = token;
                (self.other, self.passed) = (Other::Held, 0);
            }
            Client::Process => {
                self.last = token + BLOCK - 1;
                let number = self.hold.number + 1;
                self.hold = Hold { number, running: true, used: token, end: self.last };
                for task in &mut self.tasks {
                    if task.phase == Phase::Leading {
                        task.phase = Phase::Held { hold: number, is_valid: true };
                    }
                }
            }
        }
        self.tokens.add(token);
    }
}

impl Model for HandOff {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tasks: [Task::default(); TASKS],
            queue: Vec::new(),
            busy: false,
            hold: Hold::default(),
            store: None,
            waits: Vec::new(),
            other: Other::Idle,
            last: 0,
            tokens: Tokens::default(),
            passed: 0,
            losses: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, task) in state.tasks.iter().enumerate() {
            match task.phase {
                // A task that has cancelled stays in the queue until it is removed there, and can
                // queue again only after that.
                Phase::Idle if task.turns < TURNS[at] && !state.queue.contains(&at) => {
                    actions.push(Action::Want(at));
                }
                Phase::Idle => {}
                Phase::Queued | Phase::Leading => actions.push(Action::Cancel(at)),
                Phase::Handed { .. } | Phase::Offered => {
                    actions.extend([Action::Take(at), Action::Cancel(at)]);
                }
                Phase::Held { .. } => actions.extend([Action::HandOff(at), Action::Release(at)]),
                Phase::Passing { .. } => actions.push(Action::PopNext(at)),
                Phase::Sending { .. } => actions.push(Action::Send(at)),
            }
        }
        if state.hold.running && state.losses < 2 {
            actions.push(Action::LoseHold);
        }
        if state.store == Some(Client::Process) && !state.hold.running {
            actions.push(Action::LeaseEnds);
        }
        match state.other {
            Other::Idle => actions.push(Action::OtherAcquires),
            Other::Held => actions.push(Action::OtherLeaves),
            Other::Waiting | Other::Done => {}
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Want(at) => state.enter(at),
            Action::Cancel(at) => self.cancel(&mut state, at),
            Action::Take(at) => self.take(&mut state, at),
            Action::HandOff(at) | Action::Release(at) => {
                let Phase::Held { hold, .. } = state.tasks[at].phase else { return None };
                match action {
                    Action::HandOff(_) => self.hand_off(&mut state, at, hold),
                    _ => self.release(&mut state, at, hold),
                }
            }
            Action::PopNext(at) => {
                let Phase::Passing { hold, token } = state.tasks[at].phase else { return None };
                self.pop_next(&mut state, at, hold, token);
            }
            Action::Send(at) => {
                let Phase::Sending { hold, token, to } = state.tasks[at].phase else { return None };
                self.send(&mut state, at, (hold, token), to);
            }
            Action::LoseHold => {
                state.losses += 1;
                state.hold.running = false;
                for task in &mut state.tasks {
                    if let Phase::Held { is_valid, .. } = &mut task.phase {
                        *is_valid = false;
                    }
                }
                state.pass_leader_role();
            }
            Action::LeaseEnds => {
                state.store = None;
                state.promote();
            }
            Action::OtherAcquires => {
                (state.other, state.passed) = (Other::Waiting, 0);
                state.waits.push(Client::Other);
                state.promote();
            }
            Action::OtherLeaves => {
                (state.other, state.store) = (Other::Done, None);
                state.promote();
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let is_valid =
                    |task: &&Task| matches!(task.phase, Phase::Held { is_valid: true, .. });
                let tasks = state.tasks.iter().filter(is_valid).count();
                tasks + usize::from(state.other == Other::Held) < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            // The model has no timers, so while a task is queued another one must have a next step.
            Property::always(WAKES, |_, state: &State| {
                let acts = |task: &Task| !matches!(task.phase, Phase::Idle | Phase::Queued);
                let queued = |task: &Task| task.phase == Phase::Queued;
                !state.tasks.iter().any(queued) || state.tasks.iter().any(acts)
            }),
            Property::always(OWNED, |_, state: &State| {
                let number = state.hold.number;
                let has = |task: &Task| match task.phase {
                    Phase::Handed { hold, .. }
                    | Phase::Held { hold, .. }
                    | Phase::Passing { hold, .. }
                    | Phase::Sending { hold, .. } => hold == number,
                    _ => false,
                };
                !state.hold.running || state.tasks.iter().any(has)
            }),
            Property::always(ONE_LEADER, |_, state: &State| {
                let leads = |task: &&Task| matches!(task.phase, Phase::Leading | Phase::Offered);
                let leads = state.tasks.iter().filter(leads).count();
                leads + usize::from(state.hold.running) <= usize::from(state.busy)
            }),
            Property::always(FAIR, |_, state: &State| state.passed < BLOCK),
            Property::sometimes("a whole block", |_, state: &State| {
                state.hold.used == state.hold.end && state.hold.number > 0
            }),
            Property::sometimes("lost on the way", |_, state: &State| {
                let lost = |task: &Task| match task.phase {
                    Phase::Handed { hold, .. } => !state.runs(hold),
                    _ => false,
                };
                state.tasks.iter().any(lost)
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("hand_off", rule, HandOff { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("hand_off", HandOff::default(), 150_000);
}
