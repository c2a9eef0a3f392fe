//! Private MariaDB servers.
//!
//! They need `mariadbd` and `mariadb-install-db`: on the path, or in the directory that
//! `DLOCK_TEST_MARIADB_BIN` names. The server refuses to run as root; then it runs as `mysql` or
//! `nobody`, which must have access to the directory for temporary files.
//!
//! The data of a server survives a [kill](MariadbServer::kill), although it is not
//! [synced](Options::with_fsync): the operating system has it.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_testlab::Stop> {
//! use dlock_testlab::mariadb::{MariadbServer, Options};
//!
//! let server = MariadbServer::start(&Options::new()).await?;
//! server.run_sql("create table a (b int); insert into a values (1)").await?;
//! assert_eq!(server.query("select b, 'c' from a").await?, [["1", "c"]]);
//! # Ok(())
//! # }
//! ```

mod data;
mod launch;
mod options;
mod programs;
mod server;

pub use options::Options;
pub use server::MariadbServer;
