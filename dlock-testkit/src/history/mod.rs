//! The recorded operations of clients on a lock with their answers, and one checker for each
//! invariant.
//!
//! A [`Recorder`] records each operation when it is invoked and when it is answered, on one
//! monotonic clock that all processes of a machine share. A checker takes the finished [`History`]
//! and returns a [`Violation`]. Checkers judge by what clients *knew*: a client holds a lock from
//! the answer to its acquire to the start of its release. So no delay on the way makes a correct
//! history look wrong.

pub mod exclusion;
pub mod fifo;
#[cfg(test)]
mod large;
pub mod permits;
mod recorder;
pub mod reentry;
pub mod shared;
pub mod tokens;
pub mod wake_up;

use std::{collections::BTreeMap, fmt};

use dlock_core::{FencingToken, Instant, Mode};

pub use self::recorder::{Held, Recorder};

/// All operations on one name, in the order in which they were invoked.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations.
    pub events: Vec<Event>,
    /// The time at which the recording ended.
    pub ended: Option<Instant>,
}

/// A broken invariant, and the operations that broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    text: String,
    at: Option<Instant>,
}

impl Violation {
    fn new(what: impl Into<String>) -> Self {
        Self { text: what.into(), at: None }
    }

    fn seen_at(self, at: Instant) -> Self {
        Self { at: Some(at), ..self }
    }

    /// Returns the time at which it showed, if it is known.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}

/// Checks that enough happened for a verdict: an empty history breaks no invariant.
///
/// # Errors
/// If the history has fewer grants.
pub fn at_least(history: &History, grants: usize) -> Result<(), Violation> {
    let seen = history.holds().len();
    if seen < grants {
        return Err(Violation::new(format!("{seen} grants prove nothing, {grants} are expected")));
    }
    Ok(())
}

#[cfg(test)]
mod build {
    //! Builds histories by hand, with times in milliseconds.

    use dlock_core::{FencingToken, Instant, Mode};

    use super::{Event, History, Op, Reply};

    pub(super) fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Returns a hold with the times of its request, its grant, and the start of its release. The
    /// release is answered 1 ms later.
    pub(super) fn hold(
        actor: usize,
        mode: Mode,
        token: u64,
        [asked, granted, released]: [u64; 3],
    ) -> Vec<Event> {
        let id = actor as u64 * 1000 + token;
        let token = FencingToken::new(token).unwrap();
        vec![
            Event {
                actor,
                hold: id,
                op: Op::Acquire(mode),
                invoked: at(asked),
                answer: Some((at(granted), Reply::Acked { token: Some(token), until: None })),
            },
            Event {
                actor,
                hold: id,
                op: Op::Release,
                invoked: at(released),
                answer: Some((at(released + 1), Reply::Acked { token: None, until: None })),
            },
        ]
    }

    pub(super) fn history(parts: impl IntoIterator<Item = Vec<Event>>) -> History {
        let mut events: Vec<Event> = parts.into_iter().flatten().collect();
        events.sort_by_key(|event| event.invoked);
        History { events, ended: Some(at(100_000)) }
    }

    #[test]
    fn an_empty_history_proves_nothing() {
        assert!(super::at_least(&History::default(), 1).is_err());
        assert!(super::at_least(&history([hold(1, Mode::Exclusive, 1, [0, 1, 2])]), 1).is_ok());
    }
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Event {
    /// The task, owner or process that did it.
    pub actor: usize,
    /// The id of the acquisition that the operation belongs to.
    pub hold: u64,
    /// The operation.
    pub op: Op,
    /// The time at which the operation was started.
    pub invoked: Instant,
    /// The time and the content of the answer; `None` if there was no answer.
    pub answer: Option<(Instant, Reply)>,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The client acquires the lock.
    Acquire(Mode),
    /// An observer sees the claim in the queue.
    Arrive,
    /// The client downgrades the lock from exclusive to shared.
    Downgrade,
    /// The client is notified that the lock is lost.
    Lose,
    /// The client releases the lock.
    Release,
}

/// The answer to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The operation took effect.
    Acked {
        /// The fencing token, if the operation is an acquire.
        token: Option<FencingToken>,
        /// The local deadline: the client treats the lock as lost after it, unless the lock is
        /// renewed.
        until: Option<Instant>,
    },
    /// The operation did not take effect and will not.
    Refused,
    /// The operation may have taken effect.
    Unknown,
}

/// An acquisition that was granted.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// The task, owner or process.
    pub actor: usize,
    /// The mode.
    pub mode: Mode,
    /// The fencing token.
    pub token: FencingToken,
    /// The time at which the client requested the lock.
    pub asked: Instant,
    /// The time at which the claim was seen in the queue, if it was.
    pub arrived: Option<Instant>,
    /// The time at which the client knew that it held the lock.
    pub granted: Instant,
    /// The time at which the client knew of its downgrade from exclusive to shared.
    pub downgraded: Option<Instant>,
    /// The time at which the client stopped treating the lock as held: it started the release, it
    /// was notified of the loss, or the lease expired.
    pub ended: Option<Instant>,
    /// The time at which the client knew that it no longer held the lock.
    pub freed: Option<Instant>,
}

/// A time in which a client believed that it held the lock in one mode.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The task, owner or process.
    pub actor: usize,
    /// The mode.
    pub mode: Mode,
    /// The fencing token.
    pub token: FencingToken,
    /// The beginning.
    pub from: Instant,
    /// The end, exclusive.
    pub to: Instant,
}

impl Span {
    /// Whether the spans overlap and belong to different acquisitions.
    pub fn meets(&self, other: &Self) -> bool {
        !self.is_of(other) && self.from < other.to && other.from < self.to
    }

    /// Whether both spans belong to one hold, which its owner may have entered twice.
    fn is_of(&self, other: &Self) -> bool {
        self.actor == other.actor && self.token == other.token
    }
}

/// The spans with the latest ends of those seen so far, of two different acquisitions. If a span
/// overlaps any span seen so far, it overlaps one of these. The spans must be added in the order of
/// their beginnings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest([Option<Span>; 2]);

impl Latest {
    pub(super) fn see(&mut self, span: Span) {
        let Self([last, other]) = self;
        match *last {
            Some(of) if of.to >= span.to => {
                if !of.is_of(&span) && other.is_none_or(|of| of.to < span.to) {
                    *other = Some(span);
                }
            }
            Some(of) if of.is_of(&span) => *last = Some(span),
            of => (*last, *other) = (Some(span), of),
        }
    }

    /// Returns one of the spans that overlap this one, if one does.
    pub(super) fn met_by(&self, span: &Span) -> Option<Span> {
        self.0.into_iter().flatten().find(|of| of.meets(span))
    }
}

impl History {
    /// Returns the acquisitions that were granted, in the order of their tokens.
    pub fn holds(&self) -> Vec<Hold> {
        let mut by_id: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        for event in &self.events {
            by_id.entry(event.hold).or_default().push(event);
        }
        let mut holds: Vec<Hold> = by_id.values().filter_map(|events| hold(events)).collect();
        holds.sort_by_key(|hold| (hold.token, hold.granted));
        holds
    }

    /// Returns the spans in which a client believed that it held the lock, in the order of their
    /// beginnings.
    pub fn spans(&self) -> Vec<Span> {
        let forever = Instant::from_nanos(u64::MAX);
        let mut spans = Vec::new();
        for hold in self.holds() {
            let Hold { actor, mode, token, granted: from, .. } = hold;
            let to = hold.ended.unwrap_or(forever);
            let turn = hold.downgraded.unwrap_or(to);
            spans.push(Span { actor, mode, token, from, to: turn });
            if turn < to {
                spans.push(Span { actor, mode: Mode::Shared, token, from: turn, to });
            }
        }
        spans.sort_by_key(|span| span.from);
        spans
    }
}

fn hold(events: &[&Event]) -> Option<Hold> {
    let first = |op: Op| events.iter().find(|event| event.op == op);
    let acquire = events.iter().find(|event| matches!(event.op, Op::Acquire(_)))?;
    let Op::Acquire(mode) = acquire.op else { return None };
    let Some((granted, Reply::Acked { token: Some(token), until })) = acquire.answer else {
        return None;
    };
    let release = first(Op::Release);
    let stops = [release.map(|e| e.invoked), first(Op::Lose).map(|e| e.invoked), until];
    Some(Hold {
        actor: acquire.actor,
        mode,
        token,
        asked: acquire.invoked,
        arrived: first(Op::Arrive).map(|event| event.invoked),
        granted,
        downgraded: first(Op::Downgrade).map(|event| event.invoked),
        ended: stops.into_iter().flatten().min(),
        freed: release.and_then(|event| match event.answer {
            Some((at, Reply::Acked { .. })) => Some(at),
            _ => None,
        }),
    })
}
