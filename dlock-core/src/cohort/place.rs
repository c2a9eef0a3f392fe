//! A task's place in the queue of its process.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{Cohort, Turn};
use crate::engine::{Engine, runtime_gone};

/// A place in the queue. Dropped, it is left, and what was given to it passes on.
pub(super) struct Place<'a> {
    cohort: &'a Arc<Cohort>,
    engine: &'a Engine,
    /// Of who waits.
    ticket: Option<u64>,
}

impl<'a> Place<'a> {
    /// It is taken with the first poll.
    pub(super) const fn new(cohort: &'a Arc<Cohort>, engine: &'a Engine) -> Self {
        Self { cohort, engine, ticket: None }
    }
}

impl Future for Place<'_> {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        let Some(ticket) = self.ticket else {
            self.ticket = self.cohort.join(cx.waker());
            if self.ticket.is_none() {
                return Poll::Ready(Turn::Lead);
            }
            // Looked at only now, so that either this is told or it sees for itself.
            if self.engine.keeper.is_stopped() {
                return Poll::Ready(Turn::Failed(runtime_gone()));
            }
            return Poll::Pending;
        };
        let mut members = self.cohort.members.lock();
        let turn = members.line.as_mut().and_then(|waiters| waiters.take(ticket, cx.waker()));
        drop(members);
        match turn {
            Some(turn) => {
                self.ticket = None;
                Poll::Ready(turn)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut members = self.cohort.members.lock();
        let Some(waiters) = members.line.as_mut() else { return };
        let turn = waiters.line.leave(ticket);
        self.cohort.note_length(&waiters.line);
        drop(members);
        match turn {
            #[cfg(dlock_schedules)]
            Some(turn) if crate::sync::loses_turns() => std::mem::forget(turn),
            Some(Turn::Handed(hold, _)) => hold.let_go_in_background(),
            Some(Turn::Lead | Turn::GivenUp(_)) => self.cohort.pass_lead(),
            Some(Turn::Failed(_)) | None => {}
        }
    }
}
