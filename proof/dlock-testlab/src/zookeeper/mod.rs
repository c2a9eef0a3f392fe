//! Private ZooKeeper servers, standalone and as an ensemble, and Java programs beside them.
//!
//! They need `java` on the path and the jars of ZooKeeper in Debian's directory, or
//! `DLOCK_TEST_ZOOKEEPER_CLASSPATH`. That variable is a class path with all jars that a server
//! needs, and a logger that prints the server's messages (`apache-zookeeper-3.9.3-bin/lib/*`).
//!
//! The acknowledged writes of a server survive a [kill](ZooKeeperServer::kill), although they are
//! not [synced](Options::with_fsync): the operating system has them. Sessions survive too, until
//! they expire.
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
mod ensemble;
mod java;
mod nodes;
mod programs;
mod server;

pub use ensemble::Ensemble;
pub use java::JavaProgram;
pub use server::{Mode, Options, ZooKeeperServer};
