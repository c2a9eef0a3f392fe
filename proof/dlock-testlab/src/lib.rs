//! Private servers for tests: real ones, on free ports of the loopback interface, with their data
//! in temporary directories.
//!
//! When its value is dropped, a server ends and its directory is removed. This also happens when
//! the test panics. If the test process is killed, a watchdog of each server, which outlives the
//! process by a moment, kills the server. Signals go only to process ids that were started here,
//! never to names, so a server that the machine runs for other purposes is never affected. Data
//! that the servers of one kind share is created once per process and removed when the process
//! ends.
//!
//! If the program of a server is not installed, the result is [`Stop::missing`], which ignores
//! tests instead of failing them.
//!
//! [`Proxy`] injects faults between a client and any of these servers, and counts what they
//! affected; [`SteppedClock`] steps the servers' wall clocks.
//!
//! Not immediate: the peers of a killed server may consider it alive until their timeouts have
//! elapsed.

pub mod client;
mod clock;
mod directory;
mod ensemble;
pub mod etcd;
mod hosts;
mod line;
mod machine;
pub mod mariadb;
pub mod postgres;
mod process;
mod proxy;
mod pushes;
pub mod redis;
mod relay;
pub mod rights;
mod server;
mod sql;
mod wait;
mod watchdog;
pub mod zookeeper;

pub use clock::SteppedClock;
pub use directory::Snapshot;
pub use dlock_testkit::{Stop, Verdict, judge, run_test};
pub use ensemble::{Ensemble, Member};
pub use hosts::{rerun_with_addresses, server_of_rerun};
pub use process::is_stopped;
pub use proxy::Proxy;
pub use pushes::Protocol;
pub use relay::{Door, Flow};
pub use server::{DataDirectory, Server};
