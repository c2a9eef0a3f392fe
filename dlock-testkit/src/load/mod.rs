//! Load: processes that take, hold, lose and let go of locks at random, while a test does harm to
//! them or to the store; and what they believed in meanwhile, checked.
//!
//! # For tests of faults
//!
//! The test binary starts itself again for each process of holders, so its `main` is [`run`], which
//! knows how to connect in a child and has the cases:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use dlock_core::Error;
//! use dlock_testkit::{Verdict, load::{Load, Scenario, run}};
//!
//! async fn holders_die() -> Verdict {
//!     let mut load = Load::new("faults").start("sqlite:///tmp/x.db").await?;
//!     for _ in 0..10 {
//!         tokio::time::sleep(Duration::from_millis(300)).await;
//!         load.kill_one().await?; // and another begins in its place
//!     }
//!     load.finish().await?.check()
//! }
//!
//! fn main() {
//!     let connect = |address: String| async move {
//!         Err(Error::new(dlock_core::ErrorKind::Unsupported, address)) // the backend's own
//!     };
//!     run("sqlite", connect, vec![Scenario::new("holders_die", holders_die)])
//! }
//! ```
//!
//! # What is believed
//!
//! A holder believes from the moment at which its task has the guard. Its belief ends when the task
//! begins to let go, when it is told of the loss, at the deadline that the guard itself names, or
//! with the process, whichever comes first. Each process writes this down line by line, by the
//! clock that all processes of the machine share, and what it wrote survives its death. From all
//! of it a [`Report`] makes one [`History`](crate::history::History) for each name, which the
//! checkers of that module judge.
//!
//! When the harm is done, [`Running::finish`] has the processes go on in peace: at first errors are
//! excused, then nobody may fail or wait for long, and in the end all must be able to let go.
//!
//! # What is written
//!
//! Who has a lock for itself writes to a resource in the process of the test, which keeps the order
//! in which the writes arrive. A holder that was stopped past its lease writes all the same, and a
//! [`Fence`](dlock_core::Fence) has to refuse it once a newer holder has written.

mod attempt;
pub(crate) mod belief;
mod child;
pub(crate) mod line;
mod log;
mod parent;
mod plan;
mod report;
mod resource;
mod run;
mod storm;
mod worker;

pub use parent::Running;
pub use plan::{Kind, Load};
pub use report::Report;
pub use run::{Scenario, effort, run};
pub use storm::Storm;
