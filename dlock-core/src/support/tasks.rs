//! The only module that starts tasks: those of the engine itself, and background jobs, for which no
//! caller waits.
//!
//! # Concurrency
//!
//! A ticket adds one to `count` before its work begins, and subtracts it when it is dropped. The
//! last one notifies `idle` after the count is 0. `until_idle` registers with `idle`, then reads
//! the count. If the count is not 0, the notification is still to come. The ordering is acquire and
//! release, so a task that reads 0 also sees all that the work has written.

use std::sync::Arc;

use crate::{
    Error,
    sync::{
        self, Notify, Runtime,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Starts tasks on the runtime of the locks, and counts the tasks in progress.
///
/// A guard may be dropped anywhere, also outside a runtime. The stored handle can spawn tasks from
/// there. If its runtime has ended, it drops the job, and the lease frees the lock.
pub(crate) struct Tasks {
    runtime: Runtime,
    pending: Arc<Pending>,
}

#[derive(Default)]
struct Pending {
    count: AtomicUsize,
    idle: Notify,
}

/// Counts as work in progress until it is dropped.
pub(crate) struct Ticket(Arc<Pending>);

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Tasks {
    /// Uses the current runtime.
    pub(crate) fn start() -> Result<Self, Error> {
        Ok(Self { runtime: sync::runtime()?, pending: Arc::default() })
    }

    /// Starts a task of the engine itself.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs a job in the background.
    pub(crate) fn run(&self, job: impl Future<Output = ()> + Send + 'static) {
        let ticket = self.ticket();
        self.runtime.spawn(async move {
            let _ticket = ticket;
            job.await;
        });
    }

    /// Creates a ticket, for which `shutdown` waits.
    pub(crate) fn ticket(&self) -> Ticket {
        self.pending.count.fetch_add(1, Ordering::AcqRel);
        Ticket(Arc::clone(&self.pending))
    }

    /// Returns the amount of work in progress.
    pub(crate) fn pending(&self) -> usize {
        self.pending.count.load(Ordering::Acquire)
    }

    /// Waits until no work is in progress.
    pub(crate) async fn until_idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.pending.idle.notified());
            idle.as_mut().enable();
            if self.pending() == 0 {
                return;
            }
            idle.await;
        }
    }
}
