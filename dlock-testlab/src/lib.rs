//! Private servers for tests: real ones, on free ports of the loopback interface, with their data
//! in temporary directories.
//!
//! A server ends when its value is dropped, and with it its directory; also when the test panics,
//! and also when the test process is killed, because each server has a watchdog that outlives the
//! process by a moment. Signals go to process ids that were started here, never to names, so a
//! server that the machine runs for other purposes is never touched. What the servers of one kind
//! share is made once in a process, and goes when that ends.
//!
//! A server whose program is not installed is [`Stop::missing`], which ignores tests instead of
//! failing them.
//!
//! [`Proxy`] puts faults between a client and any of them, and counts whom they met;
//! [`SteppedClock`] steps their wall clocks.
//!
//! What is not immediate: a server that was killed may still be seen as alive by its peers, for as
//! long as their time-outs say.

mod account;
mod client;
mod clock;
mod counts;
mod daemon;
mod home;
mod instance;
mod launch;
pub mod mariadb;
mod port;
pub mod postgres;
mod proc;
mod program;
mod proxy;
mod pushes;
pub mod redis;
mod relay;
mod rules;
mod running;
mod snapshot;
mod sql;
mod template;
mod tls;
mod wait;
mod watchdog;
pub mod zookeeper;

pub use clock::SteppedClock;
pub use dlock_testkit::{Stop, Verdict, judge};
pub use proc::is_stopped;
pub use proxy::Proxy;
pub use pushes::Protocol;
pub use rules::{Door, Flow};
pub use snapshot::Snapshot;
