//! The labels of the metrics.

/// The kind of lock that an acquisition wants: the label `kind`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Mutex,
    Fair,
    Read,
    Write,
    Semaphore,
    Multi,
    Election,
    Job,
}

/// The place where an acquisition waits: the label `queue`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueuedIn {
    Process,
    Store,
}
