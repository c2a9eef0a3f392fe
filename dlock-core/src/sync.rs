//! What tasks meet at: mutexes, atomics, notices, timers and the start of tasks.
//!
//! All of the core takes them from here. They are those of `parking_lot`, the standard library and
//! tokio; in the package `dlock-schedules` they are modelled by `shuttle`, which then decides at each
//! of them who runs next: see `scripts/schedules`.

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

// What fills one meets nothing of the above, so that there is nothing to model.
pub(crate) use std::sync::OnceLock;
