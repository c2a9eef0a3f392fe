//! Locks for code without a runtime (feature `blocking`).
//!
//! ```
//! # fn main() -> Result<(), dlock::Error> {
//! use std::time::Duration;
//!
//! let locks = dlock::blocking::connect("memory:")?;
//! let guard = locks.mutex("inventory/42")?.lock()?;
//! println!("write with fencing token {}", guard.token());
//! guard.release()?;
//! locks.shutdown(Duration::from_secs(5))
//! # }
//! ```
//!
//! A thread in the background has a runtime of its own, in which leases are renewed while the caller
//! works, however long that takes. It ends when the last of the locks and guards is gone and what was
//! dropped has reached the store.
//!
//! # Errors
//! Everything that waits fails with `Config(Runtime)` when it is called where a tokio runtime is,
//! rather than stop that: in async code, and also in tokio's `spawn_blocking`. There, use
//! [`dlock::connect`](crate::connect) and `Handle::block_on`. Guards may be dropped anywhere.

mod guard;
mod lock;
mod locks;
mod runtime;

pub use guard::Guard;
pub use lock::Lock;
pub use locks::{Locks, connect, connect_with};
