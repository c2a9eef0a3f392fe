//! Private PostgreSQL servers, and a PgBouncer in front of one.
//!
//! They need the server's programs: in Debian's directory for them, on the path, or in the
//! directory that `DLOCK_TEST_POSTGRES_BIN` names. The server refuses to run as root; then it runs
//! as `postgres` or `nobody`, which must have access to the directory for temporary files.
//!
//! The data of a server survives a [kill](PostgresServer::kill), although it is not
//! [synced](Options::with_fsync): the operating system has it.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_testlab::Stop> {
//! use dlock_testlab::postgres::{Options, PostgresServer};
//!
//! let server = PostgresServer::start(&Options::new()).await?;
//! server.run_sql("create table a (b int); insert into a values (1)").await?;
//! assert_eq!(server.query("select b, 'c' from a").await?, [["1", "c"]]);
//! # Ok(())
//! # }
//! ```

mod bouncer;
mod server;

pub use bouncer::{Bouncer, PgBouncer};
pub use server::{Options, PostgresServer};
