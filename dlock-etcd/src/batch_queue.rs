//! Operations that wait to be sent together: see [`batch`](crate::batch).

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::{
    Semaphore, SemaphorePermit,
    oneshot::{self, error::RecvError},
};

use crate::client::{Failure, Header, RequestOp, ResponseOp};

/// The number of requests that are under way at a time.
const LANES: usize = 4;

/// The number of operations in one transaction. etcd allows 128, including those of the inner ones.
const MOST: usize = 64;

/// The operations that wait for a lane.
pub(crate) struct BatchQueue {
    queue: Mutex<VecDeque<Queued>>,
    pub(crate) lanes: Semaphore,
}

/// An operation.
pub(crate) struct Queued {
    /// No two operations of one group go together.
    pub(crate) group: Vec<u8>,
    pub(crate) op: RequestOp,
    pub(crate) answer: oneshot::Sender<BatchAnswer>,
}

/// What a caller waits for.
pub(crate) enum Turn<'a> {
    Answered(Result<BatchAnswer, RecvError>),
    /// Operations to send, with the lane for them.
    Send(Vec<Queued>, Option<SemaphorePermit<'a>>),
}

/// `None`: nothing was applied, because of one of the operations. Each is sent alone.
pub(crate) type BatchAnswer = Option<Result<(Header, ResponseOp), Failure>>;

impl BatchQueue {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::default(), lanes: Semaphore::new(LANES) }
    }

    pub(crate) fn add(&self, waiting: Queued) {
        self.queue.lock().push_back(waiting);
    }

    /// Waits for the answer to an operation, or for a lane and operations to send.
    pub(crate) async fn turn(&self, answered: &mut oneshot::Receiver<BatchAnswer>) -> Turn<'_> {
        tokio::select! {
            biased;
            answer = &mut *answered => return Turn::Answered(answer),
            // The semaphore is never closed.
            lane = self.lanes.acquire() => {
                let batch = self.take();
                if !batch.is_empty() {
                    return Turn::Send(batch, lane.ok());
                }
            }
        }
        // Another caller sends it. Lanes may be free all the time, so waiting for one would be a busy
        // loop.
        Turn::Answered(answered.await)
    }

    /// Takes operations that may go together, those that came first.
    pub(crate) fn take(&self) -> Vec<Queued> {
        let mut queue = self.queue.lock();
        let (mut groups, mut taken, mut later) = (HashSet::new(), Vec::new(), VecDeque::new());
        while taken.len() < MOST
            && let Some(waiting) = queue.pop_front()
        {
            if waiting.answer.is_closed() {
                continue;
            }
            if groups.insert(waiting.group.clone()) {
                taken.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        later.append(&mut queue);
        *queue = later;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        task::{Context, Wake, Waker},
    };

    use super::*;

    /// Whether a task was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn add(queue: &BatchQueue, group: &str) -> oneshot::Receiver<BatchAnswer> {
        let (answer, answered) = oneshot::channel();
        queue.add(Queued { group: group.into(), op: RequestOp::default(), answer });
        answered
    }

    fn taken(queue: &BatchQueue) -> Vec<String> {
        let taken = queue.take().into_iter();
        taken.map(|queued| String::from_utf8(queued.group).unwrap()).collect()
    }

    #[test]
    fn operations_of_one_group_never_go_together() {
        let queue = BatchQueue::new();
        let _told = ["a/", "a/", "b/", "a/", "c/"].map(|lock| add(&queue, lock));
        assert_eq!(taken(&queue), ["a/", "b/", "c/"]);
        assert_eq!([taken(&queue), taken(&queue)], [["a/"], ["a/"]]);
        assert!(taken(&queue).is_empty());
    }

    #[tokio::test]
    async fn a_caller_whose_operation_is_being_sent_only_waits() {
        let queue = BatchQueue::new();
        let mut answered = add(&queue, "a/");
        let sending = queue.take().remove(0);
        let mut waiting = std::pin::pin!(queue.turn(&mut answered));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // tokio wakes a task that takes too much time only after that.
        tokio::task::yield_now().await;
        assert!(!woken.0.load(Ordering::SeqCst), "it looks for lanes without a pause");
        assert_eq!(queue.lanes.available_permits(), LANES);
        assert!(sending.answer.send(None).is_ok());
        assert!(matches!(waiting.await, Turn::Answered(Ok(None))));
    }

    #[test]
    fn an_operation_that_is_given_up_is_not_sent() {
        let queue = BatchQueue::new();
        drop(add(&queue, "a/"));
        let _told: Vec<_> = (0..MOST).map(|at| add(&queue, &format!("{at}/"))).collect();
        let _last = add(&queue, "a/");
        assert_eq!(taken(&queue).len(), MOST);
        assert_eq!(taken(&queue), ["a/"]);
    }
}
