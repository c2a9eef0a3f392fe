//! Traits, guards, fencing tokens and the backend contract of dlock.
//!
//! **Application authors** start at [`Locks`], [`Guard`] and the traits of locks ([`Lock`],
//! [`FairLock`], [`ReentrantLock`], [`ReadWriteLock`], [`Semaphore`], [`MultiLock`]). Over them are
//! [`Election`] and [`Job`]. [`observe`] lists all events, `metrics` (a feature) all series.
//!
//! **Backend authors** implement [`Backend`], export a [`Factory`], and run the conformance kit
//! of `dlock-testkit`. The [`machine`] has the rules of a lock as one pure function, for stores
//! that keep a record for each name.

mod answer;
mod backend;
mod claim;
mod clock;
mod cohort;
mod continued;
mod election;
mod engine;
mod error;
mod examined;
mod fence;
mod finding;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod guarantees;
mod guard;
mod health;
mod job;
mod kinds;
mod lock;
mod locks;
pub mod machine;
mod meant;
mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
mod mode;
mod name;
mod note;
pub mod observe;
mod options;
mod owner;
mod registry;
#[cfg(all(test, dlock_schedules))]
mod schedules;
mod store_clock;
mod sync;
mod token;
mod url;
mod wrap;

pub use answer::Answer;
pub use backend::{
    AcquireRequest, Acquired, Backend, ClaimState, DynBackend, Grant, LockState, Queue, Released,
    Renewal, Renewed, StoreEvent,
};
pub use claim::{Claim, ClaimId};
pub use clock::{Clock, Instant};
pub use election::{Election, Leadership};
pub use engine::tasks::{current_io_runtime, current_runtime};
pub use error::{Certainty, ConfigIssue, Error, ErrorKind};
pub use fence::{Fence, StaleToken};
pub use finding::{Finding, Level};
pub use guarantees::{
    Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, WakeUp,
};
pub use guard::{Ended, Guard, GuardState, Lost};
pub use health::Health;
pub use job::{Job, Ran};
pub use kinds::{Counting, Fair, Multi, Mutex, ReadWrite, Reentrant, Side};
pub use lock::{
    FairLock, Lock, LockExt, LockProvider, MultiLock, ReadWriteLock, ReentrantLock, Semaphore,
};
pub use locks::Locks;
pub use memory::Memory;
pub use mode::Mode;
pub use name::LockName;
pub use note::Note;
pub use options::{LockOptions, Renew};
pub use owner::Owner;
pub use registry::{Connecting, Factory, Registry};
pub use store_clock::{ClockStep, StoreClock, StoreClocks};
pub use token::FencingToken;
pub use url::BackendUrl;
pub use wrap::{Prefixed, TokenOffset, Traced};
