//! A load for stores: processes that acquire, hold, lose and release locks at random while a test
//! injects faults into them or into the store. A checker then judges the holds as the clients saw them.
//!
//! The feature `topologies` adds a table of stores: each with its topology, the faults that can be
//! injected there, and the promises that the store keeps under them. The fault tests of a backend
//! run the rows of its store. The default feature `command` adds the command `dlock-soak`. It starts
//! the stores of the table and loads, injects faults for the requested time, and reports whether dlock
//! kept its promises.
//!
//! # For tests of faults
//!
//! The test binary starts itself again for each process of holders. So its `main` calls [`run`]
//! with the cases and with a function that connects to the store in a child process:
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
//! # Holds
//!
//! A client holds the lock from the moment at which its task has the guard. The
//! hold ends with the first of these events: the task begins the release, it is notified of the
//! loss, the local deadline of the guard passes, or the process ends. Each process writes these
//! events to a log, one on each line, with times of the clock that all processes of the machine
//! share. The log survives the death of the process. A [`Report`] turns all logs into one
//! [`History`](dlock_testkit::history::History) for each name, which the checkers of that module
//! judge.
//!
//! After the last fault, [`Running::finish`] lets the processes continue without faults. First,
//! errors are excused. Then no attempt may fail or wait for long. In the end all locks must be
//! released.
//!
//! # Faults
//!
//! [`Running`] kills, stops and stalls processes and aborts their tasks; it proves that each fault
//! took effect, and notes it. The topologies do the same with the faults of stores and connections. A
//! hand-written test [notes](Running::note) the faults of the store. A test that
//! notes all of them [says so](Load::with_faults_noted): then the checks for times without faults
//! also apply between the faults. After a fault through which the store loses its record of the
//! holders, overlapping holds are [excused](Running::excuse), and nothing else is.
//!
//! # Simulations
//!
//! A simulation runs the same work in its own process and in its own time, and collects it in a
//! [`Story`].
//!
//! # Checks
//!
//! The checkers of [`history`](dlock_testkit::history) judge holds and tokens. Other checks find
//! out how [late](Lateness) a holder learned that its lease had expired, whether a waiter was
//! passed over, whether a lock was stuck, which resources the processes left open, and whether a
//! process panicked or did not end. Checkers excuse what they cannot know: neither a delayed
//! message nor a process that did not run makes a correct history look wrong.
//!
//! # The resource and the history file
//!
//! An exclusive holder writes to a resource in the process of the test, which records the order in
//! which the writes arrive. A holder that was stopped past its lease still writes. A
//! [`Fence`](dlock_core::Fence) has to refuse this write once a newer holder has written.
//!
//! [`Report::write_history`] writes everything into one file in order of time, one JSON object on
//! each line. [`Report::read_history`] judges such a file again. A line has one of these fields:
//! `did` (an action of a process), `fault` and `excused_until` (an injected fault, and what it
//! excuses), `write` (a write that reached the resource), `broke`, and `run`. Times are nanoseconds
//! of the clock that all processes of the machine share, since it was started.

mod breach;
#[cfg(feature = "topologies")]
mod cases;
mod child;
#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "topologies")]
mod fault;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod lateness;
mod line;
mod log;
mod parent;
mod plan;
mod process;
mod record;
mod report;
mod resource;
mod run;
#[cfg(feature = "topologies")]
mod scene;
#[cfg(feature = "topologies")]
mod setups;
mod story;
mod times;
#[cfg(feature = "topologies")]
mod topology;
mod verdict;
mod waits;
mod worker;

pub use breach::{Breach, Check};
#[cfg(feature = "topologies")]
pub use cases::scenarios;
#[cfg(feature = "topologies")]
pub use fault::{Fault, Promise};
pub use lateness::Lateness;
pub use parent::Running;
pub use plan::{Kind, Load};
pub use record::LostGrant;
pub use report::Report;
pub use run::{Judged, Scenario, Storm, effort, run};
#[cfg(feature = "topologies")]
pub use setups::{FaultRow, FaultRows, SETUPS, Setup};
pub use story::{Story, ToWorld};
