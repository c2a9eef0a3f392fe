//! The ZooKeeper backend of dlock. Claims of every lock kind are ephemeral sequential nodes of one
//! session.
//!
//! Applications use [`ZooKeeper::connect`] with a [`ZkConfig`], or the factory [`ZK`] with a URL.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_core::Error> {
//! use dlock_core::Locks;
//! use dlock_zk::{ZkConfig, ZooKeeper};
//!
//! let config = ZkConfig::from_url("zk://user:secret@z1,z2,z3/shop")?;
//! let locks = Locks::new(ZooKeeper::connect(config).await?)?;
//! let guard = locks.mutex("inventory/42")?.lock().await?;
//! # guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # URLs
//!
//! `zk://[user:password@]host[:port][,host[:port]...][/chroot]`; `zks` is the same with TLS
//! (feature `tls`). Credentials are for ZooKeeper's scheme `digest`. The chroot has to exist.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.root` | the directory that contains the locks' directories, below the chroot; created if it is missing | `/dlock` |
//! | `dlock.session_timeout` | how long the servers keep the session of a silent client; `1s` to `1h`, within the servers' limits | `15s` |
//! | `dlock.acl` | the access rights of new nodes: `open`, `creator`, or `scheme:id:rights,...` | `creator` with credentials, else `open` |
//! | `dlock.tls_ca` | PEM file of the authorities to trust; required with `zks` | |
//! | `dlock.tls_cert`, `dlock.tls_key` | PEM files of the client's own certificate and key | |
//!
//! It needs ZooKeeper 3.5.3 or later (for container nodes), and the rights to create, read, write
//! and delete below the root. [`ZooKeeper::connect`] creates a node there and deletes it. If
//! `dlock.acl` names rights, it also performs all operations of a lock in a directory with that
//! ACL. So a missing right is reported at the start.
//!
//! # Sessions and leases
//!
//! One session serves all locks of a backend, and a claim lasts at most as long as its session: if
//! its process dies, the lock is free after the session timeout. While the process lives, its
//! client ends claims that are not renewed, by its own clock. A lease can't be longer than the time
//! for which the servers are known to keep the session. So dlock's core uses leases of at most half
//! a session timeout: `dlock.lease=30s` with the default session timeout gives leases of 7.5 s,
//! renewed every 2.5 s by one small transaction for all locks of a process. dlock logs a warning
//! when it shortens a requested lease; `dlock.session_timeout=60s` gives leases of 30 s. With a
//! longer session timeout, holders survive longer outages, but the locks of dead processes stay
//! held for longer.
//!
//! When a session ends, all its guards are lost and notified at once, and its waiters send new
//! claims in the next session. A guard is also lost if another client deletes its node.
//!
//! # Protocol
//!
//! ```text
//! <chroot><root>/<name>/_c_<claim>-lock-0000000007
//! ```
//!
//! A lock is a container node. The servers remove empty container nodes: by default every minute,
//! at most 10,000 a minute (`znode.container.checkIntervalMs` and `znode.container.maxPerMinute`).
//! A claim is an ephemeral sequential node in it. The queue is the order of the nodes, and its
//! longest prefix that fits holds the lock. `queue.rs` describes the node that each claim watches,
//! `node.rs` the names, `record.rs` the contents.
//!
//! - *Acquire*: `create` and `getChildren`, sent back to back. The servers execute the requests of
//!   a session in order, and a server applies changes in one order. So the list may contain
//!   predecessors that no longer exist, but never lacks one. If the claim is the first in the
//!   queue, it is granted. The fencing token is the node's `czxid`, ZooKeeper's number of the
//!   transaction that created it, times 16,384, which leaves room for local hand-off.
//! - *Hand-off*: a waiter watches the one node that blocks it. If that node was the only one before
//!   it, its deletion is the grant, without a list.
//! - *Unknown outcomes*: if several servers decide together, every `create` is one transaction with
//!   a write to a node of the session, `<chroot><root>/%session-<32 random digits>`. If a `create`
//!   is not answered, dlock deletes that node and creates the next one. After that, the `create`
//!   has been executed or never will be: see `epoch.rs` for requests that would otherwise arrive
//!   late. Then dlock looks for the claim's id, and compares the node's owner with this session.
//!   Releases are sent until they are answered.
//! - *Local deadline*: a holder relies on its lock for half a session timeout from the last request
//!   that a majority has acknowledged. `session.rs` explains why this is safe, even behind a
//!   partitioned server.
//! - *Multi-locks*: one `multi` creates all nodes with one zxid, so that any two multi-locks have
//!   the same order in all queues.
//!
//! Sources: the recipes of ZooKeeper's documentation ("ZooKeeper Recipes and Solutions"), and
//! Hunt, Konar, Junqueira, Reed: ZooKeeper, USENIX ATC 2010, section 2.4.
//!
//! # Curator
//!
//! A mutex is Curator's `InterProcessMutex` on the directory's path, and the two exclude each
//! other: they have the same names and the same order. `dlock.root=/app/locks` and the name
//! `orders` is `new InterProcessMutex(client, "/app/locks/orders")`. dlock's readers and semaphores
//! exclude Curator's mutex, too, since every node's name ends as Curator sorts it. Curator's
//! read-write locks and semaphores have other names and rules, and can't be mixed with dlock's.
//! Characters of names other than letters, digits and `-_.~:@+,=` are percent-encoded: `a/b` is
//! `/dlock/a%2Fb`.

mod acl;
mod acquire;
mod backend;
mod children;
mod claim;
mod config;
mod connect;
mod create;
mod epoch;
mod error;
mod examine;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod heartbeat;
mod inspect;
mod list;
mod node;
mod own_watch;
mod preflight;
mod proof;
mod queue;
mod record;
mod release;
mod renew;
mod session;
mod session_task;
mod standing;
mod tls;
mod wait;

pub use backend::{ZK, ZooKeeper};
pub use config::ZkConfig;
