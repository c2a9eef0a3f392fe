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
//! A background thread runs a runtime, which renews the leases while the caller works, however long
//! the work takes. The thread ends after the last of the locks and guards has been dropped and the
//! background releases have reached the store.
//!
//! # Errors
//! Everything that waits fails with `Config(Runtime)` if it is called in async code of a tokio
//! runtime, because it would block that runtime. There, use [`dlock::connect`](fn@crate::connect),
//! or call it in tokio's `spawn_blocking` or `block_in_place`. Guards may be dropped anywhere.
//!
//! Async code under `tokio::task::unconstrained` is not recognized: there, a call blocks the
//! thread.

mod guard;
mod lock;
mod locks;
mod runtime;

pub use guard::Guard;
pub use lock::Lock;
pub use locks::{Locks, connect, connect_with};
