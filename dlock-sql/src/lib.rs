//! SQL backends of dlock: every lock kind on one table. So far SQLite.
//!
//! # For application authors
//!
//! [`Sqlite`] keeps the locks of the processes of one machine in one file. Open it with
//! [`Sqlite::open`], or by a URL such as `sqlite:/var/lib/app/locks.db?dlock.create_schema=true`.
//! Give the locks a file of their own, on a local disk, and neither delete nor replace it while a
//! program uses it.
//!
//! # For backend authors: the data layout
//!
//! One row per name, `(name, base, seen, cut, snap, log)`, and one statement per verb. The
//! statement inserts the row or appends an operation to `log`, stamped with the database's clock,
//! and returns the row. Every client replays the log over the snapshot `snap` through the one
//! state machine of `dlock-core`, so all see the same holders, queue and tokens, and each finds
//! its own grant in what its statement returned. No lock logic stands in SQL, no transaction is
//! left half-done, and many names go into one statement.
//!
//! `base` names the snapshot. A client that finds the log long sends the state that it has
//! replayed along with its next operation: `seen` is the base and `cut` the length of the log that
//! it stands for. The row takes it only while its base is still `seen`, and keeps the log behind
//! `cut`, so a slow client can't undo what others have appended or folded. `seen` and `cut` are
//! columns only because that is how an upsert gets at its arguments.
//!
//! Where it comes from. Scheme 1, which everybody knows, inserts a unique row and deletes it: it
//! can't queue, renew or count, and forgets its tokens. Scheme 2 keeps state and version in the
//! row and writes by compare-and-set: a read before each write, and all of it again when somebody
//! else was faster. This is scheme 2 without the read: the operation is written blindly, and what
//! it meant is read from the row that comes back.
//!
//! A row whose lock has been unused for a day is deleted by whoever finds it. Tokens grow all the
//! same, since a new row's begin at the database's clock.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod engine;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "mysql")]
pub use mysql::{MYSQL, Mysql, MysqlConfig};
#[cfg(feature = "postgres")]
pub use postgres::{POSTGRES, Postgres, PostgresConfig};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use server::{Durability, ServerConfig};
#[cfg(feature = "sqlite")]
pub use sqlite::{SQLITE, Sqlite, SqliteConfig};
