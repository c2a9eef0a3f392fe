//! SQL backends of dlock for SQLite, PostgreSQL, MySQL and MariaDB. One table serves every lock
//! kind.
//!
//! # For application authors
//!
//! | backend | URL | shared by |
//! |---|---|---|
//! | [`Sqlite`] | `sqlite:/var/lib/app/locks.db` | the processes of one machine |
//! | [`Postgres`] | `postgres://user:password@host/database?sslmode=verify-full` | many machines |
//! | [`Mysql`] | `mysql://user:password@host/database?ssl-mode=VERIFY_IDENTITY` | many machines |
//!
//! A backend is opened from its configuration or from a URL. For a server on another machine, the
//! URL must set the TLS mode: without it the drivers would continue in clear text if the server
//! does not offer TLS.
//!
//! Create the tables with `SCHEMA` of the configuration, or let dlock create them at the first
//! connect with `dlock.create_schema=true`. After that a user needs only SELECT, INSERT, UPDATE and
//! DELETE on them. The tables can be in the same database as an application's own. On PostgreSQL a
//! separate database is better: a transaction that stays open for long anywhere in a database keeps
//! old versions of rows alive, which slows all frequent updates, including those of locks.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.create_schema` | create the tables if they are missing | `false` |
//! | `dlock.connections` | the largest number of connections that write at the same time, 1 to 16; at most one more renews, one reads and, on PostgreSQL, one listens. Each is opened when it is needed | `2` |
//! | `dlock.durability` | `full`, or `relaxed` (PostgreSQL): the server answers dlock's statements before they are on the disk, so a crash of the server may lose the last grants; tokens still grow | `full` |
//! | `dlock.response_timeout` | how long to wait for an answer, and how long to retry while the server is unreachable | `5s` |
//! | `dlock.retention` | how long the row of an unused lock is kept | `24h` |
//! | `dlock.plain` | `row` or `version`: a table scheme that other programs know, see below | none |
//! | `dlock.pooler` | PostgreSQL: a pooler such as PgBouncer in transaction mode is in front of the server | `false` |
//! | `dlock.advisory` | PostgreSQL: advisory locks of a session, see below | `false` |
//!
//! SQLite has only `dlock.create_schema`. Put its locks into a file of their
//! own, on a local disk, and neither delete nor replace the file while a program uses it. Each
//! client has a socket beside the file, on which it is notified of its grants.
//!
//! `PostgresConfig::from_pool` and `MysqlConfig::from_pool` use a pool of the application. Pools
//! are the only types of a driver in this API. They belong to `sqlx` 0.9, which this crate
//! reexports as `dlock_sql::sqlx`. If this crate moves to an incompatible version of `sqlx`, it
//! gets a new minor version. SQLite's file is opened by dlock's own connections only.
//!
//! # Table schemes: from one plain row to the log
//!
//! **Insert a row, delete it** (`dlock.plain=row`). The primary key lets one claim succeed. A
//! holder that dies leaves its row behind, so the row needs an expiry by the database's clock. With
//! clients' clocks, one wrong clock could break the exclusion. The row has to name its holder;
//! otherwise a slow holder deletes its successor's row. The remaining problems: without a queue,
//! the client that polls most often wins and others starve; there is only one kind of lock; and the
//! deletion of the row removes everything that could order two grants, so there is no fencing
//! token.
//!
//! **Keep the row, with state and version, and compare-and-set** (`dlock.plain=version`). The
//! version is a fencing token. But every change needs a read before the write, and a client whose
//! write was overtaken has to start again: with many clients most of the work is lost. There is
//! still no queue.
//!
//! **Keep the row, with a queue in it**, in which the losers wait. Now the effect of a statement
//! depends on the whole state: the next claim, expired leases, readers and writers, the permits
//! that are left. In SQL this needs a procedure in each dialect. With compare-and-set, every
//! queuing client competes with all others for the row.
//!
//! **Write down the operation, not its result.** dlock's row has a snapshot and a log. A statement
//! appends one operation under the row's lock without reading the state first, stamps it with the
//! database's time, and returns the row. So one round trip is enough, and no client is overtaken.
//! The effect of the operation follows from the log, which each client replays through the same
//! state machine. So one table and one statement serve every kind of lock on every dialect.
//!
//! Both plain schemes are available for the mutex, for programs that share a lock with programs
//! that do not use dlock. The table is `dlock_plain (name, holder, state, version, expiry)`;
//! `state` is `held` or `free`, `expiry` is in microseconds since 1970 by the server's clock. A
//! program acquires, renews and releases a lock with one compare-and-set statement each: see
//! `plain.sql`. [`Scheme::Row`] has no tokens, and [`Scheme::Version`] uses the version. Neither
//! has an order, notifications or notes, as [`Guarantees`](dlock_core::Guarantees) states.
//!
//! **Locks of a session** (`dlock.advisory=true`, PostgreSQL, mutex only) are the database's own
//! advisory locks. The server keeps no lease for them: it frees them when it notices that the
//! connection is lost. All locks of a backend are on one connection. If it is lost, all of them are
//! lost. A holder may notice the loss later than the server, so for a while two clients may believe
//! that they hold the lock; tokens distinguish them. Session locks have no notes, and do not work
//! through a pooler.
//!
//! # For backend authors: the data layout
//!
//! Each name has one row, `(name, base, seen, cut, snap, log)`, and each verb is one statement. The
//! statement inserts the row or appends operations to `log`, stamped with the database's clock, and
//! returns the row. Every client replays the log on the snapshot `snap` through the state machine
//! of `dlock-core`. So all clients see the same holders, queue and tokens, and each finds its own
//! grant in the row that its statement returned. The SQL contains no lock logic, no transaction
//! stays open between statements, and one statement can serve many names.
//!
//! `base` identifies the snapshot. A client that finds a long log sends the state that it has
//! replayed along with its next operation: `seen` is the base, and `cut` is the length of the log
//! that the state replaces. The row takes the state only while its base is still `seen`, and keeps
//! the log behind `cut`. So a slow client can't undo operations that others have appended or
//! folded. The part before `cut` must also end with the time that the client has seen there: a
//! database may lose writes (if it answers before they are on the disk, or if another server takes
//! over), and then the log continues differently. `seen` and `cut` are columns only because an
//! upsert needs columns to read its arguments. Bases are times of the clock, so no two snapshots of
//! a row have the same base. A client that has read a snapshot sends its base, and the database
//! does not send the snapshot again. With a long queue the snapshot is most of the row. PostgreSQL
//! stores it apart then, and does not read it either. On SQLite such a row has a column `pad`, so
//! that it keeps its size while the log grows, and is overwritten in place.
//!
//! Operations of one process on one name that arrive together are written together. They take
//! effect one after the other and have one time, which follows the last of them in the log.
//!
//! A statement may have been sent long ago, on a connection that was lost since. So its operations
//! carry a deadline by the database's clock (`D`). All clients that read the row ignore operations
//! after their deadline, except releases. If a claim is released while one of its statements has no
//! answer, the release bars the claim for as long as that statement may still take effect (`x`).
//!
//! On PostgreSQL, if a lock was seen held a moment ago, a claim is not written as an acquire but as
//! a join (`J`), and does not wait for the disk. A join takes a place in the queue and grants
//! nothing, whatever the row contains. A crash may lose it, but no grant depends on it: every grant
//! belongs to a statement that waited for the disk, and all earlier records of the server's log are
//! on the disk as well. If no claim is ahead, the acquire follows at once.
//!
//! An operation is stamped with the time at which its statement began. In the log it may follow an
//! operation with a later time, whose statement locked the row first. This only shortens a lease,
//! or lets the next statement see the expiry of a dead holder's lease instead of this one.
//!
//! If an operation grants the lock to a waiter, the client that wrote it finds the grant in the
//! log. On PostgreSQL this client sends a notification with the whole grant to the channel that the
//! waiter named in its own operation. It uses a separate statement after the first has committed: a
//! `NOTIFY` within the first would lock the whole database until its end. On SQLite the
//! notification is a datagram to the socket of that waiter, whose name consists of the name of the
//! file and the number that the waiter named. On the other databases, and in case a notification is
//! lost, waiters poll the row, more often if they expect to be next soon.
//!
//! Any user who can connect to the database, or write to the file, can send a notification, and a
//! waiter accepts one that names its claim. Claims are 128 random bits that only the table
//! contains. So every user who can read the table is trusted.
//!
//! `list` reads the names in use by a range of the table's key, page by page, on the reader's
//! connection. The names with a common prefix are a range, since names are compared byte for byte.
//! Each row is replayed, so a name is listed only while a read of it shows a claim. Advisory locks
//! can't be listed: the server knows only hashes of their names.
//!
//! A row whose lock has not been used for the retention (a day by default) is deleted by a client
//! whose sweep finds it. Each process looks at pages of 256 rows, the first behind a random name, so
//! that processes that live for a page clean the table together. Tokens still grow, since those of a new row start at the database's clock.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod engine;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod plain;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(dlock_sim)]
#[doc(hidden)]
#[path = "../../proof/dlock-sim/src/sql/client.rs"]
pub mod sim;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "mysql")]
pub use mysql::{MYSQL, Mysql, MysqlConfig};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use plain::Scheme;
#[cfg(feature = "postgres")]
pub use postgres::{POSTGRES, Postgres, PostgresConfig};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use server::{Durability, ServerConfig};
#[cfg(feature = "sqlite")]
pub use sqlite::{SQLITE, Sqlite, SqliteConfig};
/// The driver, for the pools of an application.
#[doc(no_inline)]
pub use sqlx;
