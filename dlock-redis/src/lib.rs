//! Locks on Redis and Valkey: one server, the master that Sentinels name, a Cluster, or a quorum of
//! independent masters. Every lock kind of dlock, with fencing tokens, first come, first served
//! over all processes, and handed over by the release itself.
//!
//! ```no_run
//! use dlock_core::{Lock, Locks};
//! use dlock_redis::{Redis, RedisConfig};
//! # async fn example() -> Result<(), dlock_core::Error> {
//! let config = RedisConfig::from_url("redis://:secret@localhost:6379/0")?;
//! let locks = Locks::over(Redis::connect(config).await?)?;
//! let guard = locks.mutex("inventory/42")?.lock().await?;
//! println!("write with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # URLs
//!
//! | URL | leads to |
//! |---|---|
//! | `redis://[[user]:password@]host[:6379][/database]` | one server |
//! | `redis+unix://[[user]:password@]/path/of/socket` | one server, by its socket |
//! | `redis+sentinel://[[user]:password@]host[:26379],host,host/master[/database]` | the master of this name; the user is the servers', see `dlock.sentinel_user` |
//! | `redis+cluster://[[user]:password@]host[:6379],host,host` | a cluster; any of its nodes will do |
//! | `redis+quorum://[[user]:password@]host,host,host[/database]` | three, five or more independent masters, of which a majority decides |
//!
//! `rediss`, `rediss+sentinel`, `rediss+cluster` and `rediss+quorum` are the same with TLS, and
//! need the Cargo feature `tls`. Users and passwords are percent-encoded.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.durability` | how many replicas must know of a grant before it counts: `master`, a number, or `majority` | `master` |
//! | `dlock.restart_guard` | after a server starts, nothing is granted for so long, by the clocks of clients: the longest lease in use | off; `30s` for a quorum |
//! | `dlock.retention` | how long the last token of a free lock is kept | `10m` |
//! | `dlock.response_timeout` | how long an answer may take | `2s` |
//! | `dlock.format` | in which [format](dlock_core::Format) records are written: `1`, which the version before this one reads, or `2`. All formats are read | `1` |
//! | `dlock.plain` | `true`: the form that other programs know, see below | `false` |
//! | `dlock.tls_ca`, `dlock.tls_cert`, `dlock.tls_key` | files in PEM: authorities to trust instead of the system's; the client's own certificate and key | |
//! | `dlock.sentinel_user`, `dlock.sentinel_password` | for the sentinels | none |
//!
//! [`RedisConfig::from_client`] takes the address, the login and TLS from a `redis::Client` of the
//! application. That is the only type of a driver in this API: it is one of `redis` 1, which is
//! there as `dlock_redis::redis` too, and a later major version of it comes with a version of
//! this crate that says so by its number.
//!
//! # What the server needs
//!
//! Redis 6.2 or later, or Valkey; RESP3, so no proxy that speaks RESP2 only; 7.0 or later for
//! messages in a cluster (waiters ask now and then before). Nobody else may subscribe to all
//! channels with `PSUBSCRIBE *`: that makes clients that are gone look as if they could be reached,
//! and a lock that is handed to one is free only after a lease. `maxmemory-policy noeviction`: any
//! other may evict a held lock, and is warned of. A user needs no more than
//!
//! ```text
#![doc = include_str!("acl.txt")]
//! ```
//!
//! Connecting tries each command on the keys of a name that nobody uses, on each master of a cluster
//! or quorum, and is refused if a part is missing, with the line that allows it. A quorum warns and
//! does without such a master while a majority is left; `examine` names it. `info` is optional:
//! without it the server is not checked. So is `scan`, without which locks can't be listed. Without
//! the right to the channels waiters ask now and then. `config|get` and `cluster|info` are not in the
//! line: add them so that `examine` is told more, and so that a server which has every write on disk
//! is known as such. Each connection to one server without a restart guard asks for `config|get`
//! once, and no more if that is refused. Where all names of an application begin with `shop/`
//! (`dlock.prefix=shop/`, [`RedisConfig::with_prefix`]), `~dlock:*:shop/*` is enough instead of
//! `~dlock:*`. The plain form needs less:
//!
//! ```text
#![doc = include_str!("acl_plain.txt")]
//! ```
//!
//! # The protocol
//!
//! `src/keys.rs` has the five keys of a lock, `scripts/` the scripts with their arguments and answers.
//! In short:
//!
//! - **Acquire** is one script that takes the lock or joins its queue, and **release** one that
//!   makes the next waiting claim the holder and sends one message to its client. So a hand-over
//!   costs two scripts and one message, however many wait. A client has one connection and one
//!   channel, on which all its messages come (in a cluster one for each of 64 groups of names).
//! - **Waiting claims are leases too**, kept alive by asking for all of a client's together, every
//!   third of their lease and every 3 s at least. So a lost message delays a grant for no longer,
//!   a dead waiter is passed over, and one whose client is disconnected is passed over at once and
//!   keeps its place.
//! - **An acquire carries a deadline** by the server's clock, until which its client waits. A script
//!   that is run later, since the network has brought it late, does nothing and answers its time. What
//!   may still come before the deadline, over a connection that was lost, is given up once more.
//! - **Everything is idempotent by claim id**, so what was sent without an answer is sent again:
//!   after `NOSCRIPT`, a lost connection, `LOADING`, `READONLY`, `MOVED`, `ASK`, `TRYAGAIN`,
//!   `CLUSTERDOWN`.
//! - **Time** is the server's. Leases end by its clock, tokens start at it. A holder measures its
//!   lease from before its request was sent, or for a message by the server's time of the grant.
//!
//! What stays of a lock that is free is its last token, one small key, for the retention; for two
//! leases more if it was renewed.
//!
//! # Listing
//!
//! `list` walks through all keys of the database with `SCAN`, a few hundred at a time, so it takes
//! longer the more keys other programs have there, and holds nobody up. It walks twice, since keys
//! may move meanwhile. A quorum's names are those that may be
//! held on a majority, as far as one answers.
//!
//! # The plain form
//!
//! With `dlock.plain=true` a mutex is one key of its very name, taken by `SET name claim NX PX` and
//! deleted if it still holds the claim, as in the documentation of `SET`. Both are scripts. Other programs can read
//! it and take part. There are no readers and permits, nobody queues, no note is kept, and
//! fencing tokens mean nothing; the guarantees say so. To list them is to list all strings of the
//! database.

mod backend;
mod config;
mod durable;
mod error;
mod examine;
mod factory;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod keys;
mod later;
mod link;
mod list;
mod minder;
mod owed;
mod plain;
mod poll;
mod quorum;
mod reply;
mod rights;
mod scripts;
mod session;
mod store;
mod unanswered;

/// The driver, for [`RedisConfig::from_client`].
#[doc(no_inline)]
pub use redis;

pub use self::{
    backend::Redis,
    config::{Durability, RedisConfig},
    factory::REDIS,
};
