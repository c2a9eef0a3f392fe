//! Locks on Redis and Valkey: one server, the master that Sentinel reports, a Cluster, or a quorum
//! of independent masters. The backend supports every lock kind, with fencing tokens. Claims of all
//! processes wait in one queue, first come, first served. A release grants the lock to the next
//! waiter.
//!
//! ```no_run
//! use dlock_core::{Lock, Locks};
//! use dlock_redis::{Redis, RedisConfig};
//! # async fn example() -> Result<(), dlock_core::Error> {
//! let config = RedisConfig::from_url("redis://:secret@localhost:6379/0")?;
//! let locks = Locks::new(Redis::connect(config).await?)?;
//! let guard = locks.mutex("inventory/42")?.lock().await?;
//! println!("write with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # URLs
//!
//! | URL | connects to |
//! |---|---|
//! | `redis://[[user]:password@]host[:6379][/database]` | one server |
//! | `redis+unix://[[user]:password@]/path/of/socket[?db=3]` | one server, by its Unix socket; the login may also be `?user=app&pass=secret` |
//! | `redis+sentinel://[[user]:password@]host[:26379],host,host/master[/database]` | the master with this name; user and password are for the servers; for the sentinels see `dlock.sentinel_user` |
//! | `redis+cluster://[[user]:password@]host[:6379],host,host` | a cluster, through any of its nodes |
//! | `redis+quorum://[[user]:password@]host,host,host[/database]` | three, five or more independent masters, of which a majority decides |
//!
//! `rediss`, `rediss+sentinel`, `rediss+cluster` and `rediss+quorum` are the same with TLS, and
//! need the Cargo feature `tls`. Users and passwords are percent-encoded.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.durability` | how many replicas must know of a grant before it counts: `master`, a number, or `majority` | `master` |
//! | `dlock.restart_guard` | how long nothing is granted after a server starts, by the clocks of clients; set it to the longest lease in use | off; `30s` for a quorum |
//! | `dlock.response_timeout` | how long to wait for the answer to a request | `2s` |
//! | `dlock.plain` | `true`: the [plain form](#the-plain-form), which other programs know | `false` |
//! | `dlock.tls_ca`, `dlock.tls_cert`, `dlock.tls_key` | files in PEM: authorities to trust instead of the system's; the client's own certificate and key | |
//! | `dlock.sentinel_user`, `dlock.sentinel_password` | user and password for the sentinels | none |
//!
//! [`RedisConfig::from_client`] takes the address, the login and TLS from a `redis::Client` of the
//! application. `redis::Client` is the only type of a driver in this API. It belongs to `redis` 1,
//! which this crate reexports as `dlock_redis::redis`. If this crate moves to a later major version
//! of `redis`, it gets a new minor version.
//!
//! # What the server needs
//!
//! Redis 7.0 or later, or Valkey. dlock refuses an older server if the server reports its version.
//! The connection uses RESP3, so a proxy that speaks only RESP2 does not work. No client may
//! subscribe to all channels with `PSUBSCRIBE *`: `PUBLISH` then counts a receiver for disconnected
//! clients, so a lock may be granted to a dead waiter and stay held for one lease. Set
//! `maxmemory-policy noeviction`: any other policy may evict a held lock, and dlock logs a warning
//! about it. A user needs no more than
//!
//! ```text
#![doc = include_str!("acl.txt")]
//! ```
//!
//! When dlock connects, it tries each command on the keys of an unused name, on each master of a
//! cluster or quorum. If a right is missing, connecting fails, and the error contains the line that
//! grants it. A quorum logs a warning and does not use such a master if a majority is left;
//! `examine` names it. `info` is optional: without it dlock does not check the server. `scan` is
//! optional: without it locks can't be listed. Without the right to the channels, waiters poll.
//! `config|get` and `cluster|info` are not in the line. Add them so that `examine` can report more,
//! and so that dlock can see whether the server has every write on disk before it answers. Each
//! connection to one server without a restart guard sends `config|get` once, and never again if it
//! is refused. If all names of an application begin with `shop/` (`dlock.prefix=shop/`,
//! [`RedisConfig::with_prefix`]), `~dlock:*:shop/* ~dlock:{*}t` is enough instead of `~dlock:*`. The plain form
//! needs less:
//!
//! ```text
#![doc = include_str!("acl_plain.txt")]
//! ```
//!
//! # The protocol
//!
//! `src/keys.rs` describes the keys of a lock. `scripts/` contains the scripts with their
//! arguments and answers. In short:
//!
//! - **Acquire** of a mutex or writer whose lock is probably free is three plain commands in one round
//!   trip. Otherwise it is one script that takes the lock or joins its queue. **Release** is one script
//!   that makes the next waiting claim the holder and sends one message to its client. So a
//!   hand-off costs two scripts and one message, however many clients wait. The release of a lock
//!   for which no claim waits is a shorter script. The first release that finds a waiter costs one
//!   more round trip, and so does one half a minute after the last waiter. A client has one
//!   connection and one channel, on which it receives all its messages (in a cluster, one channel
//!   for each of 64 groups of names).
//! - **A waiting claim has a lease, too.** A client polls for all its waiting claims with one
//!   request, every third of their lease and at least every 3 s. So a lost message delays a grant
//!   by no more than that. A dead waiter is skipped when its lease expires. A waiter whose client
//!   is disconnected is skipped at once, but keeps its position.
//! - **An acquire carries a deadline** by the server's clock: for a script the time until which its
//!   client waits, and for plain commands the end of the lease. If the network delivers it later, it
//!   has no effect. If a claim is released while an acquire of it may still arrive over a lost
//!   connection, dlock releases the claim again until the deadline has passed.
//! - **Every request is idempotent by claim id**, so an unanswered request is sent again: after
//!   `NOSCRIPT`, a lost connection, `LOADING`, `READONLY`, `MOVED`, `ASK`, `TRYAGAIN`,
//!   `CLUSTERDOWN`.
//! - **Time** is the server's. Leases expire by its clock, and tokens start at its time. A holder
//!   measures its lease from a moment before its request was sent. If a message granted the lock,
//!   it uses the server's time of the grant.
//!
//! A free lock leaves no key. Each of the 64 groups of names has one small stream of tokens, which
//! stays.
//!
//! # Listing
//!
//! `list` reads all keys of the database with `SCAN`, a few hundred at a time. It takes longer if
//! other programs have many keys there, but it does not block the server. It scans twice, since
//! keys may move meanwhile. For a quorum, `list` needs the answers of a majority, and returns the
//! names that a majority may hold.
//!
//! # The plain form
//!
//! With `dlock.plain=true` a mutex is one key with exactly the name of the lock.
//! `SET name claim NX PX` takes it, and a release deletes it if it still holds the claim, as the
//! documentation of `SET` describes. Both are scripts. Other programs can read the key and take
//! part. The plain form has no readers, permits, queue or notes, and its fencing tokens mean
//! nothing; the guarantees say so. `list` returns all strings of the database.

mod acquire;
mod acquire_all;
mod backend;
mod config;
mod contention;
mod deferred_releases;
mod durable;
mod error;
mod examine;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod keys;
mod link;
mod list;
mod plain;
mod preflight;
mod quorum;
mod release;
mod renew;
mod reply;
mod scripts;
mod session;
mod store;
mod take;
mod unanswered;
mod wait;
mod waiters;

/// The driver, for [`RedisConfig::from_client`].
#[doc(no_inline)]
pub use redis;

pub use self::{
    backend::{REDIS, Redis},
    config::{Durability, RedisConfig},
};
