//! The ZooKeeper backend of dlock: every lock kind on ephemeral sequential nodes of one session.
//!
//! For applications: [`ZooKeeper::connect`] with a [`ZkConfig`], or the factory [`ZK`] by URL.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_core::Error> {
//! use dlock_core::Locks;
//! use dlock_zk::{ZkConfig, ZooKeeper};
//!
//! let config = ZkConfig::from_url("zk://user:secret@z1,z2,z3/shop")?;
//! let locks = Locks::over(ZooKeeper::connect(config).await?)?;
//! let guard = locks.mutex("inventory/42")?.lock().await?;
//! # guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # URLs
//!
//! `zk://[user:password@]host[:port][,host[:port]...][/chroot]`; `zks` is the same by TLS (feature
//! `tls`). Credentials are of ZooKeeper's scheme `digest`. The chroot has to exist.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.root` | the directory of the locks' directories, below the chroot; made where it is missing | `/dlock` |
//! | `dlock.session_timeout` | after which the servers end the session of a silent client; `1s` to `1h`, and what the servers allow | `15s` |
//! | `dlock.acl` | who may use the nodes that are made: `open`, `creator`, or `scheme:id:rights,...` | `creator` with credentials, else `open` |
//! | `dlock.format` | in which [format](dlock_core::Format) records are written: `1`, which the version before this one reads, or `2`. All formats are read | `1` |
//! | `dlock.tls_ca` | PEM file of the authorities to trust; needed with `zks` | |
//! | `dlock.tls_cert`, `dlock.tls_key` | PEM files of the client's own certificate and key | |
//!
//! It needs ZooKeeper 3.5.3 or later (containers), and the rights to create, read, write and delete
//! below the root. [`ZooKeeper::connect`] makes a node there and deletes it; where `dlock.acl` names
//! rights, it also does all that a lock does in a directory with that ACL. So what is missing is told
//! at the start.
//!
//! # Sessions and leases
//!
//! One session serves all locks of a backend, and a claim lives as long as its session: when its
//! process dies, the lock is free after the session timeout. While the process lives, its client
//! ends what is not renewed by its own clock. So a lease longer than the servers are known to keep
//! the session makes no sense, and dlock's core asks for half a session timeout at the most:
//! `dlock.lease=30s` with the default session timeout gives leases of 7.5 s, renewed every 2.5 s
//! by one small transaction for all locks of a process. A lease that was asked for and is shortened
//! so is told with a warning; `dlock.session_timeout=60s` gives leases of 30 s. A longer session
//! timeout lets holders live through longer outages, and keeps the locks of the dead for longer.
//!
//! When a session ends, all its guards are lost and told at once, and the claims that wait ask
//! anew, in the next session. So are guards whose node somebody else deletes.
//!
//! # Protocol
//!
//! ```text
//! <chroot><root>/<name>/_c_<claim>-lock-0000000007
//! ```
//!
//! A lock is a container node, which the servers remove when it is empty: every minute, at most
//! 10,000 at a time, unless told otherwise (`znode.container.checkIntervalMs` and
//! `znode.container.maxPerMinute`). A claim is an ephemeral sequential node in it. The queue is the order of the nodes, and held is its longest prefix that
//! fits: see `queue.rs` for who watches what. `node.rs` has the names, `data.rs` the contents.
//!
//! - *Acquire*: `create` and `getChildren`, sent back to back. A session's requests are served in
//!   order and a server applies changes in one order, so the list can show predecessors that have
//!   gone, and can't miss one. First in line: granted. The fencing token is the node's `czxid`,
//!   ZooKeeper's number of the transaction that made it, times 16,384: room for local hand-off.
//! - *Hand-over*: a waiter watches the one node that stands in its way. When that was the only one
//!   before it, its deletion is the grant, without a list.
//! - *Unknown outcomes*: where several servers decide together, every `create` goes with a write to a node of the session,
//!   `<chroot><root>/%session-<32 random digits>`, in one transaction. When one was not answered, that node
//!   is deleted and the next one made, so it has come by then or never will: see `epoch.rs` for
//!   what comes late otherwise. Then look for the claim's id, then compare the node's owner with
//!   this session. Releases are sent until they are answered.
//! - *Belief* lasts for half a session timeout from the last request that a majority has
//!   acknowledged: see `session.rs` for why that is safe, also behind a server that is cut off.
//! - *Multi-locks*: one `multi` makes all nodes with one zxid, so that any two stand in the same
//!   order in all queues.
//!
//! Sources: the recipes of ZooKeeper's documentation ("ZooKeeper Recipes and Solutions"), and
//! Hunt, Konar, Junqueira, Reed: ZooKeeper, USENIX ATC 2010, section 2.4.
//!
//! # Curator
//!
//! A mutex is Curator's `InterProcessMutex` on the directory's path, and either keeps the other
//! out: same names, same order. `dlock.root=/app/locks` and the name `orders` is
//! `new InterProcessMutex(client, "/app/locks/orders")`. dlock's readers and semaphores keep
//! Curator's mutex out too, since every node's name ends as Curator sorts it. Curator's read-write
//! locks and semaphores have names and rules of their own, and do not mix. Names with characters
//! other than letters, digits and `-_.~:@+,=` are percent-encoded: `a/b` is `/dlock/a%2Fb`.

mod acl;
mod backend;
mod beat;
mod children;
mod config;
mod connect;
mod create;
mod data;
mod enter;
mod epoch;
mod error;
mod examine;
mod factory;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod keep;
mod leave;
mod list;
mod look;
mod many;
mod minder;
mod node;
mod own;
mod place;
mod queue;
mod session;
mod stand;
mod store;
mod tls;
mod token;
mod try_out;
mod wake;
mod warn;
mod window;

pub use backend::ZooKeeper;
pub use config::ZkConfig;
pub use factory::ZK;
