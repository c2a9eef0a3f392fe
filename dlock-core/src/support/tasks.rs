//! The one place where tasks are started: the machinery's own, and those that see to its end what
//! nobody waits for.
//!
//! # Concurrency
//!
//! A ticket adds one to `count` before its work begins, and takes it off when it is dropped. The last one
//! notifies after the count is 0. `until_idle` registers for the notice, then reads the count: if it reads
//! another number, the notice is still to come. The ordering is acquire and release, so whoever reads 0
//! also sees what the work has written.

use std::sync::Arc;

use crate::{
    Error,
    sync::{
        self, Notify, Runtime,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Starts tasks on the runtime that the locks were made on, and counts what is under way.
///
/// A guard may be dropped anywhere, also outside a runtime. A stored handle spawns from there
/// too; when its runtime is gone it drops the job, and the lease does what it would have done.
pub(crate) struct Tasks {
    runtime: Runtime,
    pending: Arc<Pending>,
}

#[derive(Default)]
struct Pending {
    count: AtomicUsize,
    idle: Notify,
}

/// Something is under way for as long as this lives.
pub(crate) struct Ticket(Arc<Pending>);

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Tasks {
    /// Takes the current runtime.
    pub(crate) fn start() -> Result<Self, Error> {
        Ok(Self { runtime: sync::runtime()?, pending: Arc::default() })
    }

    /// Starts a task of the machinery itself.
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

    /// Makes `shutdown` wait.
    pub(crate) fn ticket(&self) -> Ticket {
        self.pending.count.fetch_add(1, Ordering::AcqRel);
        Ticket(Arc::clone(&self.pending))
    }

    /// How much is under way.
    pub(crate) fn pending(&self) -> usize {
        self.pending.count.load(Ordering::Acquire)
    }

    /// Waits until nothing is under way.
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
