//! Load: processes that take, hold, lose and let go of locks at random, while a test does harm to
//! them or to the store; and what they believed in meanwhile, checked.
//!
//! With the feature `command`, which is the default, the command `dlock-soak` is here as well: it
//! starts stores, loads and harms them for as long as is asked for, and says whether the promises
//! of dlock were kept.
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
//! use dlock_soak::{Load, Scenario, run};
//! use dlock_testkit::Verdict;
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
//! of it a [`Report`] makes one [`History`](dlock_testkit::history::History) for each name, which the
//! checkers of that module judge.
//!
//! When the harm is done, [`Running::finish`] has the processes go on in peace: at first errors are
//! excused, then nobody may fail or wait for long, and in the end all must be able to let go.
//!
//! # What is harm
//!
//! The processes are killed, stopped, stalled, and their tasks aborted by [`Running`], which proves
//! that it was done, and notes it. What is done to the store is [noted](Running::note) by the test.
//! A test that notes all of it [says so](Load::with_faults_noted): then what has to be so while all
//! is well is demanded between the faults, too. After a fault by which the store forgets whom it
//! promised what, beliefs that overlap are [excused](Running::excuse), and nothing else is.
//!
//! # What is judged
//!
//! Beliefs by the checkers of [`history`](dlock_testkit::history), tokens, and further: how [late](Lateness)
//! a holder learned that its lease had ended; whether anybody was passed over, or a lock stuck; what
//! the processes left open, and whether one panicked or did not come to its end. Checkers excuse
//! what they can't know: no delay on the way, and no process that did not run, makes a right history
//! look wrong.
//!
//! # What is written
//!
//! Who has a lock for itself writes to a resource in the process of the test, which keeps the order
//! in which the writes arrive. A holder that was stopped past its lease writes all the same, and a
//! [`Fence`](dlock_core::Fence) has to refuse it once a newer holder has written.
//!
//! [`Report::write_history`] keeps all of it in one file, as a JSON object a line in order of time,
//! and [`Report::read_history`] judges it again. A line has one of these fields: `did` (what a
//! process did), `fault` and `excused_until` (what was done to it, and what is excused), `write`
//! (what reached the resource), `broke`, and `run`. Times are nanoseconds of the clock that all
//! processes of the machine share, since it was started.

mod attempt;
mod belief;
mod bypass;
mod child;
#[cfg(feature = "command")]
pub mod command;
mod crew;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod harm;
mod lateness;
mod leaks;
mod line;
mod liveness;
mod log;
mod orders;
mod parent;
mod plan;
mod process;
mod rates;
mod record;
mod report;
mod resource;
mod run;
#[cfg(test)]
mod short;
mod storm;
mod times;
mod verdict;
mod vigil;
mod wire;
mod worker;

pub use lateness::Lateness;
pub use parent::Running;
pub use plan::{Kind, Load};
pub use report::Report;
pub use run::{Scenario, effort, run};
pub use storm::Storm;
pub use verdict::Check;
