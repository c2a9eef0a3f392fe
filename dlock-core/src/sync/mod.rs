//! The primitives that tasks share: mutexes, atomics, notifications, timers and the start of tasks.
//!
//! All of the core imports them from here. They are those of `parking_lot`, the standard library
//! and tokio. In the package `dlock-schedules`, `shuttle` models them and selects at each use of
//! one the task that runs next: see `scripts/schedules`.

#[cfg(dlock_schedules)]
mod modelled;
pub(crate) mod runtime;

#[cfg(dlock_schedules)]
pub(crate) use modelled::*;

#[cfg(not(dlock_schedules))]
pub(crate) use std::sync::atomic;

#[cfg(not(dlock_schedules))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(dlock_schedules))]
pub(crate) use tokio::{
    runtime::Handle as Runtime,
    sync::{Notify, oneshot},
    time,
};

#[cfg(not(dlock_schedules))]
pub(crate) use self::runtime::current_runtime as runtime;

// Not modelled: the closures that fill one use no primitive of this module, so there is no choice
// to explore within them.
pub(crate) use std::sync::OnceLock;
