//! Whether the store still held the claim when a guard was handed off.
//!
//! A hand-off sends no release, whose answer would reveal that somebody has revoked the lock. So
//! after a hand-off, work whose output depends on the lock waits for one of these: the answer to
//! the release of a later guard, a renewal that was sent after the hand-off, or a loss. The next
//! task does not wait for it. Decision 2 states when a renewal is sent.
//!
//! # Concurrency
//!
//! A waiting task creates the box of [`ColdFields`](super::ColdFields) before the hand-off, so a
//! later guard finds it. The waiting task registers with `confirmed` before it loads. The end, the
//! answer to the release, and the answer to a renewal are stored before `confirmed` is notified.
//! The end stores `state` and then loads `used`, which a hand-off changes; the waiting task loads
//! `state` after the hand-off. All four are `SeqCst`, so one of the two tasks sees the other.
//! `schedules/hand_off.rs` tests it.

use super::{HELD_TO_THE_END, Hold, LOST_BEFORE, UNANSWERED};
use crate::{Ended, FencingToken, Released, sync::Notify, sync::atomic::Ordering};

impl Hold {
    /// Prepares a hand-off that will be confirmed. Returns false if renewal may stop before that.
    pub(crate) fn prepare_to_confirm(&self) -> bool {
        self.cold().terms.renewed_for >= 2 * self.lease()
    }

    /// Makes the hold due for a renewal that confirms the end of the guard with this token. Returns
    /// false if it is confirmed already.
    pub(crate) fn request_confirmation(&self, token: FencingToken) -> bool {
        self.cold().requested.fetch_max(token.get() + 1, Ordering::SeqCst);
        self.is_doubted()
    }

    /// Returns whether at least as many guards have ended since the last renewal that was requested
    /// as tasks of this process wait for the lock. Their tasks may want the lock again, and it
    /// would go to the store if they came back too late.
    pub(crate) fn runs_out_of_tasks(&self) -> bool {
        let cold = self.cold();
        let requested =
            cold.requested.load(Ordering::SeqCst).max(cold.answered.load(Ordering::SeqCst));
        let ended = self.used().saturating_sub(requested.max(self.first));
        self.queue.as_ref().is_some_and(|queue| queue.len() as u64 <= ended)
    }

    /// Returns whether a guard waits for a renewal that confirms its end.
    pub(super) fn is_doubted(&self) -> bool {
        self.cold.get().is_some_and(|cold| {
            cold.requested.load(Ordering::SeqCst) > cold.answered.load(Ordering::SeqCst)
        })
    }

    /// Records that a renewal is about to be sent. There is one at a time.
    pub(super) fn renewal_starts(&self) {
        if let Some(cold) = self.cold.get() {
            cold.in_flight.store(self.used(), Ordering::SeqCst);
        }
    }

    /// Records that the store held the claim when it executed that renewal.
    pub(super) fn renewal_succeeded(&self) {
        if let Some(cold) = self.cold.get() {
            cold.answered.fetch_max(cold.in_flight.load(Ordering::SeqCst), Ordering::SeqCst);
            self.notify_confirmed();
        }
    }

    /// Records what the release of the last guard says about the guards before it.
    pub(crate) fn set_outcome(&self, was_held: bool) {
        if let Some(cold) = self.cold.get() {
            let outcome = if was_held { HELD_TO_THE_END } else { LOST_BEFORE };
            cold.outcome.store(outcome, Ordering::SeqCst);
            self.notify_confirmed();
        }
    }

    /// Wakes the tasks that wait for the confirmation of a hand-off.
    pub(super) fn notify_confirmed(&self) {
        if self.was_handed_off()
            && let Some(cold) = self.cold.get()
        {
            cold.confirmed.notify_waiters();
        }
    }

    /// The notification of a new result of [`confirmed`](Self::confirmed).
    pub(crate) fn confirming(&self) -> &Notify {
        &self.cold().confirmed
    }

    /// Returns whether the store still held the claim at the end of the guard with this token;
    /// `None` if that is not known yet. If the store gave no answer until the lease had ended, the
    /// guard counts as held to its end, as after a failed release.
    pub(crate) fn confirmed(&self, token: FencingToken) -> Option<Released> {
        if self.cold().answered.load(Ordering::SeqCst) > token.get() {
            return Some(Released::Released);
        }
        match self.ended()? {
            Ended::Released => match self.cold().outcome.load(Ordering::SeqCst) {
                UNANSWERED => None,
                LOST_BEFORE => Some(Released::AlreadyLost),
                _ => Some(Released::Released),
            },
            Ended::Expired => Some(Released::Released),
            _ => Some(Released::AlreadyLost),
        }
    }
}
