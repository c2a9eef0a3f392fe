//! Tasks that wait for turns, first-come, first-served.
//!
//! The queue is used only under the mutex of its [`LocalQueue`](super::LocalQueue). A turn moves in two
//! steps: `give` removes the first task from `waiting` and puts its turn into `given`; the task,
//! once it runs, fetches it with `take`. A task that is dropped between the two calls `leave`,
//! which returns the turn, and hands it to the next task. So no turn is lost
//! (`schedules/leave.rs`).

use std::{collections::VecDeque, task::Waker};

/// The waiting tasks, and the turns that they have not fetched. Both change under one lock, so that
/// no turn is given to a task that has left.
pub(super) struct WaitQueue<T> {
    /// In the order of their tickets, so that a task is found by binary search.
    waiting: VecDeque<(u64, Waker)>,
    /// Turns that their tasks have not fetched yet.
    given: Vec<(u64, T)>,
    tickets: u64,
}

impl<T> WaitQueue<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The ticket of the task that joined last.
    pub(super) const fn last_ticket(&self) -> u64 {
        self.tickets
    }

    /// Adds a task behind all others. Its waker is called when it has a turn. Returns its ticket.
    pub(super) fn join(&mut self, waker: &Waker) -> u64 {
        self.tickets += 1;
        self.waiting.push_back((self.tickets, waker.clone()));
        self.tickets
    }

    /// Gives a turn to the first task, and returns its waker. Nothing happens if no task waits. The
    /// caller wakes it after it has left the mutex, since a woken task takes the mutex at once.
    pub(super) fn give(&mut self, what: T) -> Option<Waker> {
        let (ticket, waker) = self.waiting.pop_front()?;
        self.given.push((ticket, what));
        Some(waker)
    }

    /// Returns the turn of this task. If it has none yet, this waker replaces the last one.
    pub(super) fn take(&mut self, ticket: u64, waker: &Waker) -> Option<T> {
        let given = self.given(ticket);
        if given.is_none()
            && let Ok(at) = self.position(ticket)
            && let Some((_, known)) = self.waiting.get_mut(at)
        {
            known.clone_from(waker);
        }
        given
    }

    /// Removes a task that stops waiting. If it had a turn by then, the caller hands it to the next
    /// task.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<T> {
        if let Ok(at) = self.position(ticket) {
            self.waiting.remove(at);
        }
        self.given(ticket)
    }

    fn given(&mut self, ticket: u64) -> Option<T> {
        let at = self.given.iter().position(|(of, _)| *of == ticket)?;
        Some(self.given.swap_remove(at).1)
    }

    fn position(&self, ticket: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket)
    }
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), given: Vec::new(), tickets: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn tasks_are_served_in_order_and_dropped_ones_are_skipped() {
        let (mut queue, waker) = (WaitQueue::default(), Waker::noop());
        let tickets: Vec<_> = (0..4).map(|_| queue.join(waker)).collect();
        assert_eq!(queue.leave(tickets[1]), None);
        for what in ["a", "b", "c"] {
            assert!(queue.give(what).is_some());
        }
        assert!(queue.is_empty() && queue.give("d").is_none());
        assert_eq!(queue.take(tickets[2], waker), Some("b"));
        assert_eq!(queue.take(tickets[0], waker), Some("a"));
        // The turn that the task had not fetched is returned once.
        assert_eq!(queue.leave(tickets[3]), Some("c"));
        assert_eq!(queue.leave(tickets[3]), None);
    }

    #[test]
    fn the_last_waker_is_woken() {
        let mut queue = WaitQueue::default();
        let (old, new) = (Arc::new(WakeCount::default()), Arc::new(WakeCount::default()));
        let ticket = queue.join(&Waker::from(Arc::clone(&old)));
        assert_eq!(queue.take(ticket, &Waker::from(Arc::clone(&new))), None);
        queue.give(()).unwrap().wake();
        assert_eq!((old.0.load(SeqCst), new.0.load(SeqCst)), (0, 1));
        assert_eq!(queue.take(ticket, Waker::noop()), Some(()));
    }
}
