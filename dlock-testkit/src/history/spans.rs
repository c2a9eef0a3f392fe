//! The holds in a history, and the times in which clients believed that they held the lock.

use std::collections::BTreeMap;

use dlock_core::{FencingToken, Instant, Mode};

use super::{Event, History, Op, Reply};

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
    pub(super) fn is_of(&self, other: &Self) -> bool {
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
