//! The conformance kit: tests of the contract that every backend of dlock fulfils.
//!
//! # For backend authors
//!
//! Implement [`Store`], which opens a fresh store, and [`Opened`], which reads what the store
//! contains. Pass the store to [`run()`]. The file `tests/conformance.rs` needs nothing else. Set
//! `harness = false` for that target in `Cargo.toml`:
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
//! Each case is a test of its own, named after the claim that it proves. If the store's
//! [`Guarantees`](dlock_core::Guarantees) rule out a case, the case is *ignored* with the reason.
//! Other cases check that the backend refuses requests that its guarantees exclude. If a server is
//! missing, all cases are ignored, unless `DLOCK_TEST_REQUIRE` names the store
//! (`DLOCK_TEST_REQUIRE=redis,zk`): then the missing server is a failure. `DLOCK_TEST_EFFORT=20`
//! makes the random and contended cases twenty times longer. A fraction has no effect.
//!
//! A case that fails while the machine stalls for a quarter of the [lease](Bounds::lease) or longer is
//! repeated once, without other cases of the process, with names of its own. A line on standard error
//! says so: `repeated: CASE: REASON (the machine stalled for 420 ms)`. Two holders, tokens out of
//! order and findings in a [`history`] are never repeated. [`run_test`] does the same for tests of your
//! own that need a server.
//!
//! Each case uses its own names. At its end, the case proves through [`Opened::leftovers`] that it
//! left nothing behind. If other processes can reach the store, [`Opened::address`] returns its
//! address: the cross-process cases start the test binary again as a child, which takes locks, is
//! stopped, and is killed.
//!
//! # Other parts of the kit
//!
//! - [`history`]: the recorded operations of clients with their answers, and one checker for each
//!   invariant.
//! - [`model`]: the rules of a lock in their simplest form.
//! - [`Suite`]: the cases, for programs that run them in another way. The kit's own tests run them
//!   on stores with deliberate mistakes, and the cases have to catch each mistake.

mod all;
mod alone;
mod case;
mod cases;
mod child;
mod faulty_backend;
pub mod found;
mod heard;
pub mod history;
#[doc(hidden)]
pub mod inputs;
pub mod model;
#[doc(hidden)]
pub mod polls;
mod run;
mod stalls;
mod stop;
mod store;
mod suite;
#[doc(hidden)]
pub mod support;
mod verbs;

pub use all::ALL;
pub use alone::{judge, run_test};
pub use case::Case;
pub use heard::Heard;
pub use run::{run, run_each};
pub use stop::{Stop, Verdict};
pub use store::{Bounds, Opened, Store};
pub use suite::{Outcome, Suite};
