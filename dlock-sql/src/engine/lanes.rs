//! The queue of a worker. It has two lanes: renewals and releases go before claims.
//!
//! A worker does one thing after the other. There may be thousands of claims, while held locks have
//! to be renewed in time. Each lane is first in,
//! first out. A release may overtake a claim that was sent before it. That is safe: the core does
//! not release a claim while its acquire is under way.

use tokio::{select, sync::mpsc};

/// The number of messages that can wait in a lane. Callers wait if it is full.
const QUEUE: usize = 1024;

/// A message to a worker.
pub(crate) trait Message {
    /// Returns whether it only renews or releases.
    fn is_urgent(&self) -> bool;
}

/// The callers' end.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    urgent: mpsc::Sender<T>,
    others: mpsc::Sender<T>,
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Ends<T> {
    urgent: mpsc::Receiver<T>,
    others: mpsc::Receiver<T>,
}

/// Returns an empty queue.
pub(crate) fn lanes<T: Message>() -> (Lanes<T>, Ends<T>) {
    let ((urgent, first), (others, second)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
    (Lanes { urgent, others }, Ends { urgent: first, others: second })
}

impl<T> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        Self { urgent: self.urgent.clone(), others: self.others.clone() }
    }
}

impl<T: Message> Lanes<T> {
    /// Returns the lane of a message.
    pub(crate) fn of(&self, message: &T) -> &mpsc::Sender<T> {
        match message.is_urgent() {
            true => &self.urgent,
            false => &self.others,
        }
    }
}

impl<T> Ends<T> {
    /// Returns the next message, or `None` when all senders are dropped.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        // Biased, so that an urgent message always goes first.
        select! {
            biased;
            Some(message) = self.urgent.recv() => Some(message),
            Some(message) = self.others.recv() => Some(message),
            else => None,
        }
    }

    /// Returns whether all senders are dropped.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn is_closed(&self) -> bool {
        self.urgent.is_closed() && self.others.is_closed()
    }

    /// Returns the next urgent message that has arrived.
    pub(crate) fn try_urgent(&mut self) -> Option<T> {
        self.urgent.try_recv().ok()
    }

    /// Returns the next other message that has arrived.
    pub(crate) fn try_other(&mut self) -> Option<T> {
        self.others.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct TestMessage {
        is_urgent: bool,
        number: usize,
    }

    impl Message for TestMessage {
        fn is_urgent(&self) -> bool {
            self.is_urgent
        }
    }

    /// Returns the message that has arrived, if there is one.
    fn recv(ends: &mut Ends<TestMessage>) -> Option<Option<TestMessage>> {
        match pin!(ends.recv()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }

    /// All sequences of this number of steps: two kinds send, and one receives.
    #[test]
    fn urgent_requests_go_first_and_each_lane_keeps_its_order() {
        const STEPS: u32 = 8;
        for sequence in 0..3usize.pow(STEPS) {
            let (lanes, mut ends) = lanes();
            let mut model = [VecDeque::new(), VecDeque::new()];
            for step in 0..STEPS {
                let lane = sequence / 3usize.pow(step) % 3;
                if lane == 2 {
                    let next = model[0].pop_front().or_else(|| model[1].pop_front());
                    assert_eq!(recv(&mut ends), next.map(Some), "{sequence}");
                    continue;
                }
                let number = usize::try_from(step).unwrap();
                let sent = TestMessage { is_urgent: lane == 0, number };
                lanes.of(&sent).try_send(sent).unwrap();
                model[lane].push_back(sent);
            }
            drop(lanes);
            for left in model.into_iter().flatten() {
                assert_eq!(recv(&mut ends), Some(Some(left)), "{sequence}");
            }
            assert_eq!(recv(&mut ends), Some(None));
        }
    }

    #[test]
    fn a_full_lane_leaves_the_other_alone() {
        let (lanes, mut ends) = lanes();
        let [urgent, other] = [true, false].map(|is_urgent| TestMessage { is_urgent, number: 0 });
        while lanes.of(&other).try_send(other).is_ok() {}
        lanes.of(&urgent).try_send(urgent).unwrap();
        assert_eq!(ends.try_urgent(), Some(urgent));
        assert_eq!((ends.try_urgent(), ends.try_other()), (None, Some(other)));
    }
}
