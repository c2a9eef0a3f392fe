//! The same primitives with a scheduling point at each use, for the checks in `schedules`.
//!
//! Notifications and channels are tokio's own, one step each. Time does not pass until a scenario
//! advances it. Each primitive can be broken on purpose ([`Mutant`]), to show that a scenario
//! detects it.
//!
//! Shuttle treats every atomic access as sequentially consistent. So these checks find wrong orders
//! of accesses in the code, but not a memory ordering that is too weak: the comments in `hold`,
//! `shared_queue` and `local_queue` justify those.

pub(crate) mod atomic;
pub(crate) mod oneshot;
pub(crate) mod time;

use std::{cell::Cell, sync::PoisonError};

use shuttle::sync::MutexGuard;
use tokio::sync::futures::Notified;

use crate::Error;

/// The primitive that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A state of one byte is read and written in two steps.
    TornState,
    /// A turn that was given to a dropped task is lost.
    LostTurn,
    /// A notification reaches no waiter.
    LostNotice,
    /// A receiver is not woken when its sender is dropped.
    LostWake,
    /// Background jobs are dropped before they begin.
    LostJob,
    /// A request is sent although it was given up.
    SentAnyway,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Breaks this primitive on this thread from now on.
pub(crate) fn activate(mutant: Mutant) {
    ACTIVE.set(Some(mutant));
}

fn is_active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Returns whether a turn is lost together with the task that received it.
pub(crate) fn loses_turns() -> bool {
    is_active(Mutant::LostTurn)
}

/// Returns whether requests are sent although they were given up.
pub(crate) fn sends_anyway() -> bool {
    is_active(Mutant::SentAnyway)
}

/// A scheduling point: another task may run here.
pub(crate) fn point() {
    // Shuttle switches tasks at each access to one of its primitives.
    shuttle::sync::atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        point();
        self.0.notified()
    }

    pub(crate) fn notify_one(&self) {
        point();
        self.0.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        point();
        if !is_active(Mutant::LostNotice) {
            self.0.notify_waiters();
        }
    }
}

/// The runtime of the tasks.
#[derive(Debug)]
pub(crate) struct Runtime {
    started: atomic::AtomicBool,
}

impl Runtime {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // The first task of an engine is its renewal task.
        let job = self.started.swap(true, atomic::Ordering::SeqCst);
        if job && is_active(Mutant::LostJob) {
            return;
        }
        drop(shuttle::future::spawn(task));
    }
}

pub(crate) fn runtime() -> Result<Runtime, Error> {
    Ok(Runtime { started: atomic::AtomicBool::new(false) })
}
