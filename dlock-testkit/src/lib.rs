//! The conformance kit: what a store must do to be a backend of dlock, as tests.
//!
//! # For backend authors
//!
//! Say how to open a fresh store and how to look into it, and hand it to [`run`]. This is the
//! whole of `tests/conformance.rs`, with `harness = false` for that target in `Cargo.toml`:
//!
//! ```no_run
//! use async_trait::async_trait;
//! use dlock_core::{DynBackend, Error, LockName, Memory};
//! use dlock_testkit::{Opened, Stop, Store};
//!
//! struct InMemory;
//! struct Open(DynBackend);
//!
//! #[async_trait]
//! impl Store for InMemory {
//!     fn name(&self) -> &str {
//!         "memory"
//!     }
//!     async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
//!         Ok(Box::new(Open(Memory::new())))
//!     }
//! }
//!
//! #[async_trait]
//! impl Opened for Open {
//!     async fn connect(&self) -> Result<DynBackend, Error> {
//!         Ok(self.0.clone())
//!     }
//!     async fn leftovers(&self, _: &LockName) -> Result<Vec<String>, Stop> {
//!         Ok(Vec::new()) // a look into the store, without the backend
//!     }
//! }
//!
//! fn main() {
//!     dlock_testkit::run(InMemory)
//! }
//! ```
//!
//! Each case is a test of its own, named after the claim it proves. One that the store's
//! [`Guarantees`](dlock_core::Guarantees) rule out is *ignored*, with the reason, and what they
//! do not promise is checked to be refused. A server that is missing ignores all cases, unless
//! `DLOCK_TEST_REQUIRE` names the store (`DLOCK_TEST_REQUIRE=redis,zk`): then that is a failure.
//! `DLOCK_TEST_EFFORT=20` makes the random and contended cases twenty times longer. A fraction
//! leaves them as they are.
//!
//! Each case has names of its own and proves at its end, through [`Opened::leftovers`], that it
//! left nothing behind. A store that other processes reach gives its [address](Opened::address):
//! the cross-process cases start the test binary again and let it hold locks, stop, and die.
//!
//! # What else is here
//!
//! - [`history`]: what clients did and were told, and one checker for each invariant.
//! - [`model`]: the rules of a lock in their simplest form.
//! - [`Suite`]: the cases for programs that run them in another way; the kit's own tests run them
//!   on stores that are wrong on purpose, and each must be caught.

mod all;
mod case;
mod cases;
mod child;
mod context;
mod crew;
pub mod found;
mod heard;
pub mod history;
#[doc(hidden)]
pub mod inputs;
mod meddle;
pub mod model;
mod play;
#[doc(hidden)]
pub mod polls;
mod process;
mod require;
mod run;
mod stop;
mod store;
mod suite;
#[doc(hidden)]
pub mod support;
mod verbs;

pub use all::ALL;
pub use case::Case;
pub use heard::Heard;
pub use require::judge;
pub use run::{run, run_each};
pub use stop::{Stop, Verdict};
pub use store::{Bounds, Opened, Store};
pub use suite::{Outcome, Suite};
