//! What a history says about who held the lock when.

use std::collections::BTreeMap;

use dlock_core::{FencingToken, Instant, Mode};

use super::{Event, History, Op, Reply};

/// An acquisition that was granted.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Who.
    pub actor: usize,
    /// What.
    pub mode: Mode,
    /// Its token.
    pub token: FencingToken,
    /// When it was asked for.
    pub asked: Instant,
    /// When it was seen to stand in line, if it was.
    pub arrived: Option<Instant>,
    /// When the client knew that it holds the lock.
    pub granted: Instant,
    /// When the client went from alone to shared.
    pub downgraded: Option<Instant>,
    /// When the client stopped to believe: it started the release, was told of the loss, or its
    /// lease ended.
    pub ended: Option<Instant>,
    /// When the client knew that the lock is free.
    pub freed: Option<Instant>,
}

/// A time in which a client believed to hold the lock in one mode.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Who.
    pub actor: usize,
    /// How.
    pub mode: Mode,
    /// Under which token.
    pub token: FencingToken,
    /// From when.
    pub from: Instant,
    /// Until when, exclusive.
    pub to: Instant,
}

impl Span {
    /// Whether both were at one time of different acquisitions.
    pub fn meets(&self, other: &Self) -> bool {
        !self.is_of(other) && self.from < other.to && other.from < self.to
    }

    /// Whether both are of one hold, which may have been entered twice.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.actor == other.actor && self.token == other.token
    }
}

/// Of the times seen so far, those that end last, of two different acquisitions: who meets any of
/// them meets one of these. Times are to be seen in the order in which they begin.
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

    /// One that this one meets, if there is any.
    pub(super) fn met_by(&self, span: &Span) -> Option<Span> {
        self.0.into_iter().flatten().find(|of| of.meets(span))
    }
}

impl History {
    /// The acquisitions that were granted, in the order of their tokens.
    pub fn holds(&self) -> Vec<Hold> {
        let mut by_id: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        for event in &self.events {
            by_id.entry(event.hold).or_default().push(event);
        }
        let mut holds: Vec<Hold> = by_id.values().filter_map(|events| hold(events)).collect();
        holds.sort_by_key(|hold| (hold.token, hold.granted));
        holds
    }

    /// The times in which somebody believed to hold the lock, by their beginning.
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
