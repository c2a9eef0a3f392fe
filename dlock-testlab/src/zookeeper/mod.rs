//! Private ZooKeeper servers, alone and as an ensemble, and Java programs beside them.
//!
//! They need `java` on the path and the jars of ZooKeeper where Debian puts them, or
//! `DLOCK_TEST_ZOOKEEPER_CLASSPATH` with a class path that has all that a server needs, and a
//! logger that prints what the server says (`apache-zookeeper-3.9.3-bin/lib/*`).
//!
//! What a server acknowledged is kept over a [kill](ZooKeeperServer::kill), although it is not
//! [synced](Options::with_fsync): the system has it. So are sessions, for as long as they last.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_testlab::Stop> {
//! use dlock_testlab::zookeeper::{Mode, Options, ZooKeeperServer};
//!
//! let server = ZooKeeperServer::start(&Options::new()).await?;
//! assert_eq!(server.mode().await?, Mode::Standalone);
//! server.create("/a", "1").await?;
//! assert_eq!(server.nodes_under("/").await?, ["/a"]);
//! # Ok(())
//! # }
//! ```

mod archive;
mod compiled;
mod config;
mod ensemble;
mod hop;
mod java;
mod links;
mod nodes;
mod options;
mod programs;
mod server;
mod wire;
mod words;

pub use ensemble::Ensemble;
pub use java::JavaProgram;
pub use options::Options;
pub use server::ZooKeeperServer;
pub use words::Mode;
