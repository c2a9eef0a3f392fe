//! Traits, guards, fencing tokens and the backend contract of dlock.
//!
//! **Application authors** start at [`Locks`], [`Guard`] and the traits of locks ([`Lock`],
//! [`FairLock`], [`ReentrantLock`], [`ReadWriteLock`], [`Semaphore`], [`MultiLock`]). [`Election`]
//! and [`Job`] are built on locks. [`observe`] lists all events; `metrics` (a feature) lists all
//! series.
//!
//! **Backend authors** implement [`Backend`] (and [`Admin`], which is optional), export a
//! [`Factory`], and run the conformance kit of `dlock-testkit`. The [`machine`] contains the rules
//! of a lock as one pure function, for stores that keep a record for each name. The parts in
//! [`session`] are for stores whose locks end with a session of their client.

mod acquire;
mod app;
mod connect;
mod contract;
mod engine;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod hold;
mod kinds;
pub mod machine;
pub mod observe;
#[cfg(all(test, dlock_schedules))]
mod schedules;
pub mod session;
#[cfg(dlock_sim)]
pub mod sim;
mod stores;
mod support;
mod sync;
mod vocabulary;

pub use app::election::{Election, Leadership};
pub use app::health::Health;
pub use app::job::{Job, Ran};
pub use app::locks::Locks;
pub use connect::registry::{Connecting, Factory, Registry};
pub use connect::servers::{Servers, TlsFiles};
pub use connect::url::BackendUrl;
pub use contract::backend::{Admin, Backend, DynBackend};
pub use contract::events::{NoEvent, StoreEvent, StoreEventSender, StoreEvents};
pub use contract::request::{
    AcquireRequest, Acquired, ClaimState, Grant, LockState, Queue, Released, Renewal, Renewed,
};
pub use contract::store_clock::{ClockStep, StoreClock, StoreClocks};
pub use guard::{Guard, Lost};
pub use kinds::lock::{
    FairLock, Lock, LockExt, LockProvider, MultiLock, ReadWriteLock, ReentrantLock, Semaphore,
};
pub use kinds::{CountingSemaphore, FairMutex, MultiMutex, Mutex, ReentrantMutex, RwLock, Side};
pub use stores::memory::Memory;
pub use stores::wrap::{Noted, Prefixed, TokenOffset, Traced};
pub use support::backoff::Backoff;
#[cfg(feature = "metrics")]
pub use support::metrics;
pub use support::race::race;
pub use sync::runtime::{current_io_runtime, current_runtime};
pub use vocabulary::answer::{Answer, SendFlag};
pub use vocabulary::claim::{Claim, ClaimId};
pub use vocabulary::clock::{Clock, Instant};
pub use vocabulary::error::{Certainty, ConfigIssue, Error, ErrorKind};
pub use vocabulary::fence::{Fence, StaleToken};
pub use vocabulary::finding::{Finding, Level};
pub use vocabulary::format::{FORMAT, unknown_format};
pub use vocabulary::guarantees::{
    Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, WakeUp,
};
pub use vocabulary::mode::Mode;
pub use vocabulary::name::{IntoName, LockName};
pub use vocabulary::note::Note;
pub use vocabulary::options::{LockOptions, Renew};
pub use vocabulary::outcome::{Ended, GuardState};
pub use vocabulary::owner::Owner;
pub use vocabulary::token::FencingToken;
