//! The one place where tasks are started, and the one that runs what nobody waits for.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
};

use crate::{ConfigIssue, Error};

/// Work that goes on after its caller has gone.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that runs jobs to their end: releases of dropped guards, claims of dropped futures.
///
/// A guard may be dropped anywhere, also outside a runtime, so dropping only sends a job here.
pub(crate) struct Tasks {
    runtime: Handle,
    jobs: mpsc::UnboundedSender<Counted>,
    pending: Arc<Pending>,
}

#[derive(Default)]
struct Pending {
    count: AtomicUsize,
    idle: Notify,
}

/// A job that is counted until it is done or dropped with its runtime.
struct Counted {
    job: Job,
    pending: Arc<Pending>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.pending.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pending.idle.notify_waiters();
        }
    }
}

impl Tasks {
    /// Starts the task on the current runtime.
    pub(crate) fn start() -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|error| {
            Error::config(
                ConfigIssue::Runtime,
                "locks need a tokio runtime for renewal: make them inside one (#[tokio::main], \
                 Runtime::block_on)",
            )
            .with_source(error)
        })?;
        #[expect(
            clippy::disallowed_methods,
            reason = "one job for each guard or future that was dropped, so it is bounded by them"
        )]
        let (jobs, receiver) = mpsc::unbounded_channel();
        let tasks = Self { runtime, jobs, pending: Arc::default() };
        tasks.spawn(run(receiver));
        Ok(tasks)
    }

    /// Starts a task of the machinery itself.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs a job in the background. When the runtime is gone it is dropped, and the lease does
    /// what it would have done.
    pub(crate) fn run(&self, job: Job) {
        self.pending.count.fetch_add(1, Ordering::AcqRel);
        let _ = self.jobs.send(Counted { job, pending: Arc::clone(&self.pending) });
    }

    /// How many jobs are under way.
    pub(crate) fn pending(&self) -> usize {
        self.pending.count.load(Ordering::Acquire)
    }

    /// Waits until no job is under way.
    pub(crate) async fn until_idle(&self) {
        loop {
            let idle = self.pending.idle.notified();
            if self.pending() == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

/// Ends when every sender is gone and every job is done.
async fn run(mut receiver: mpsc::UnboundedReceiver<Counted>) {
    let mut jobs = FuturesUnordered::new();
    let mut open = true;
    while open || !jobs.is_empty() {
        tokio::select! {
            job = receiver.recv(), if open => match job {
                Some(mut counted) => jobs.push(async move {
                    counted.job.as_mut().await;
                    drop(counted);
                }),
                None => open = false,
            },
            Some(()) = jobs.next(), if !jobs.is_empty() => {}
        }
    }
}
