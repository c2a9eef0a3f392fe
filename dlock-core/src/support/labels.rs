//! The labels of what is counted.

/// What is asked for: the label `kind`.
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

/// Where an acquisition waits: the label `queue`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Line {
    Process,
    Store,
}
