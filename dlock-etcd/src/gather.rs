//! Operations that wait to be sent together: see [`together`](crate::together).

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::client::{Failure, Header, RequestOp, ResponseOp};

/// The number of requests that are under way at a time.
const LANES: usize = 4;

/// The number of operations in one transaction. etcd allows 128, including those of the inner ones.
const MOST: usize = 64;

/// The operations that wait for a lane.
pub(crate) struct Gather {
    queue: Mutex<VecDeque<Gathered>>,
    pub(crate) lanes: Semaphore,
}

/// An operation.
pub(crate) struct Gathered {
    /// No two operations of one group go together.
    pub(crate) group: Vec<u8>,
    pub(crate) op: RequestOp,
    pub(crate) answer: oneshot::Sender<TogetherAnswer>,
}

/// `None`: nothing was applied, because of one of the operations. Each is sent alone.
pub(crate) type TogetherAnswer = Option<Result<(Header, ResponseOp), Failure>>;

impl Gather {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::default(), lanes: Semaphore::new(LANES) }
    }

    pub(crate) fn add(&self, waiting: Gathered) {
        self.queue.lock().push_back(waiting);
    }

    /// Takes operations that may go together, those that came first.
    pub(crate) fn take(&self) -> Vec<Gathered> {
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
    use super::*;

    fn add(gather: &Gather, group: &str) -> oneshot::Receiver<TogetherAnswer> {
        let (answer, told) = oneshot::channel();
        gather.add(Gathered { group: group.into(), op: RequestOp::default(), answer });
        told
    }

    fn taken(gather: &Gather) -> Vec<String> {
        let taken = gather.take().into_iter();
        taken.map(|gathered| String::from_utf8(gathered.group).unwrap()).collect()
    }

    #[test]
    fn operations_of_one_group_never_go_together() {
        let gather = Gather::new();
        let _told = ["a/", "a/", "b/", "a/", "c/"].map(|lock| add(&gather, lock));
        assert_eq!(taken(&gather), ["a/", "b/", "c/"]);
        assert_eq!([taken(&gather), taken(&gather)], [["a/"], ["a/"]]);
        assert!(taken(&gather).is_empty());
    }

    #[test]
    fn an_operation_that_is_given_up_is_not_sent() {
        let gather = Gather::new();
        drop(add(&gather, "a/"));
        let _told: Vec<_> = (0..MOST).map(|at| add(&gather, &format!("{at}/"))).collect();
        let _last = add(&gather, "a/");
        assert_eq!(taken(&gather).len(), MOST);
        assert_eq!(taken(&gather), ["a/"]);
    }
}
