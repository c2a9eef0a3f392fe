//! SQL backends of dlock: every lock kind on one table, in SQLite, PostgreSQL, MySQL or MariaDB.
//!
//! # For application authors
//!
//! | backend | URL | reaches |
//! |---|---|---|
//! | [`Sqlite`] | `sqlite:/var/lib/app/locks.db` | the processes of one machine |
//! | [`Postgres`] | `postgres://user:password@host/database?sslmode=verify-full` | many machines |
//! | [`Mysql`] | `mysql://user:password@host/database?ssl-mode=VERIFY_IDENTITY` | many machines |
//!
//! Each is opened by its configuration or by URL. Whether to use TLS has to be said for a server on
//! another machine: the drivers would go on in clear text where the server does not offer it.
//!
//! The tables are made by hand, from `SCHEMA` of the configuration, or when first connecting with
//! `dlock.create_schema=true`. After that a user needs SELECT, INSERT, UPDATE and DELETE on them and
//! nothing else. They can stand beside an application's own. On PostgreSQL a database of their own
//! is better: a transaction that is open for long anywhere in a database keeps old versions of the
//! rows alive, and makes whatever updates rows often slow, locks included.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.create_schema` | make the tables where they are missing | `false` |
//! | `dlock.connections` | how many connections write, 1 to 16; there is one more for renewals, one for looking and, on PostgreSQL, one that listens | `2` |
//! | `dlock.durability` | `full`, or `relaxed` (PostgreSQL): statements of dlock are answered before they are on the disk, so a crash of the server may forget the last grants; tokens stay in order | `full` |
//! | `dlock.response_timeout` | how long an answer may take, and how long to try again when the server is away | `5s` |
//! | `dlock.retention` | how long the row of an unused lock stays | `24h` |
//! | `dlock.format` | in which [format](dlock_core::Format) records are written: `1`, which the version before this one reads, or `2`. All formats are read | `1` |
//! | `dlock.plain` | `row` or `version`: a table scheme that other programs know, see below | none |
//! | `dlock.pooler` | PostgreSQL: a pooler such as PgBouncer in transaction mode stands before the server | `false` |
//! | `dlock.listen` | PostgreSQL: have waiters told of their grant | `true` without a pooler |
//! | `dlock.advisory` | PostgreSQL: locks of a session, see below | `false` |
//! | `dlock.returning` | MySQL and MariaDB: whether the server has `INSERT .. RETURNING` | found out |
//!
//! SQLite has the first only; give its locks a file of their own, on a local disk, and neither
//! delete nor replace it while a program uses it. Each client has a socket beside the file, where it
//! is told of its grants.
//!
//! `PostgresConfig::from_pool` and `MysqlConfig::from_pool` use a pool of the application. Pools are
//! the only types of a driver in this API: those of `sqlx` 0.9, which is there as
//! `dlock_sql::sqlx` too. A later version of it that is not compatible comes with a version of
//! this crate that says so by its number. SQLite's file has connections of dlock alone.
//!
//! # From what everybody does to what dlock does
//!
//! **Insert a row, delete it** (`dlock.plain=row`). The primary key lets one in. Who dies leaves the
//! row behind, so it needs an expiry by the database's clock; a clock of the clients would let one
//! that is wrong break in. The row has to name its holder, or a slow one deletes its successor's.
//! What is left: nobody queues, so who asks most often wins and others starve; there is one kind of
//! lock; and with the row goes all that could order two grants, so there is no fencing token.
//!
//! **Keep the row, with state and version, and compare-and-set** (`dlock.plain=version`). The
//! version is a fencing token. But every change costs a read before the write, and all of it again
//! for each who was overtaken: with many clients most work is lost. Still nobody queues.
//!
//! **Keep the row, with a queue in it**, and the losers wait in line. Now what a statement must do
//! depends on the whole state: who is next, whose lease has ended, who reads and who writes, how
//! many permits are left. As SQL that is a procedure in each dialect; as compare-and-set, every
//! queuing client fights with all others for the row.
//!
//! **Write down what happened, not what follows.** dlock's row has a snapshot and a log. A statement
//! appends one operation, blindly, stamped with the database's time, under the row's lock, and
//! returns the row; so one round trip is all, and nobody is overtaken. What the operation meant
//! follows from the log, which each client replays through the same state machine. One table and one
//! statement thus serve every kind of lock on every dialect.
//!
//! Both plain schemes can be had, for the mutex, for programs that share a lock with others that know
//! nothing of dlock. The table is `dlock_plain (name, holder, state, version, expiry)`; `state` is
//! `held` or `free`, `expiry` in microseconds since 1970 by the server's clock. Take, keep and give
//! back a lock with one statement each that compares: see `plain.sql`. [`Scheme::Row`] has no tokens,
//! [`Scheme::Version`] has the version, and neither has an order, a wake-up, or a place for
//! notes, as [`Guarantees`](dlock_core::Guarantees) says.
//!
//! **Locks of a session** (`dlock.advisory=true`, PostgreSQL, mutex only) are the database's own
//! advisory locks: no lease runs out, and the server frees them when it notices that the connection
//! is gone. All locks of a backend are on one connection, and its loss is the loss of all. A holder
//! may notice later than the server, so two may believe for a while; tokens tell them apart.
//! There is no place for notes, and no pooler may stand in between.
//!
//! # For backend authors: the data layout
//!
//! One row per name, `(name, base, seen, cut, snap, log)`, and one statement per verb. The
//! statement inserts the row or appends operations to `log`, stamped with the database's clock,
//! and returns the row. Every client replays the log over the snapshot `snap` through the one
//! state machine of `dlock-core`, so all see the same holders, queue and tokens, and each finds
//! its own grant in what its statement returned. No lock logic stands in SQL, no transaction is
//! left half-done, and many names go into one statement.
//!
//! `base` names the snapshot. A client that finds the log long sends the state that it has
//! replayed along with its next operation: `seen` is the base and `cut` the length of the log that
//! it stands for. The row takes it only while its base is still `seen`, and keeps the log behind
//! `cut`, so a slow client can't undo what others have appended or folded. What stands before `cut`
//! has to end with the time that the client has seen there, since a database may lose writes (it
//! answers before they are on the disk, or another server takes over), and then the log goes on
//! differently from where it was. `seen` and `cut` are
//! columns only because that is how an upsert gets at its arguments. Bases are times of the clock, so
//! no two snapshots of a row have the same: whoever has read the snapshot of a base says so, and it
//! is not sent again. With a long queue that is most of the row.
//!
//! Operations of one process on one name that have come together are written together. They happen
//! one after the other, at one time, which stands behind the last of them.
//!
//! What a statement appends may have been sent long ago, on a connection that was lost since. So its
//! operations have a deadline by the database's clock (`D`), past which they are void to all who read
//! the row, save releases; and the release of a claim that was sent without an answer bars it for as
//! long as such a statement may still have an effect (`x`).
//!
//! On PostgreSQL a claim of a lock that was seen to be held a moment ago is not an acquire but a join
//! (`J`), and does not wait for the disk: it takes a place in the queue and lets nobody in, whatever
//! the row says. A crash may lose it, and nobody believes in a grant that rests on it, since every
//! grant is of a statement that waited, and what stands before that in the server's log is on the
//! disk as well. Should nobody stand in its way, the acquire follows at once.
//!
//! Operations are stamped with the time at which their statement began, and may stand in the log
//! behind a later one, which held the row's lock first. That only makes a lease shorter than it
//! could be, or lets a dead holder's end be seen by the next statement instead of this one.
//!
//! Who is granted a lock while it waits is found in the log by whoever wrote the operation that let
//! it in. On PostgreSQL that one sends a note with all that there is to know of the grant to the
//! channel that the waiter named in its own operation, in a statement of its own after the first has
//! committed: a `NOTIFY` inside it would take a lock on the whole database until its end. On SQLite
//! the note is a datagram to the socket of that waiter, whose name is that of the file and its home.
//! Elsewhere, and behind the notes, waiters look at the row, the more often the sooner they expect to
//! be next.
//!
//! Anybody who may connect to the database, or write to the file, may send a note, and a waiter
//! believes one that names its claim; claims are 128 random bits that stand in the table only. So
//! whoever may read the table is trusted.
//!
//! The names in use are listed by a range of the table's key, page by page, on the reader's
//! connection; what begins with a text is a range, since names are compared byte for byte. Each row
//! is replayed, so a name is listed as long as a look at it shows somebody. Advisory locks can't be
//! listed: the server knows hashes of their names.
//!
//! A row whose lock has been unused for a day is deleted by whoever finds it. Tokens grow all the
//! same, since a new row's begin at the database's clock.

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
