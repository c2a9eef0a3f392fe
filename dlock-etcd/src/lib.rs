//! The etcd backend of dlock. Claims of every lock kind are keys with the lease of one session.
//!
//! Applications use [`Etcd::connect`] with an [`EtcdConfig`], or [`FACTORY`] with a URL.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_core::Error> {
//! use dlock_core::Locks;
//! use dlock_etcd::{Etcd, EtcdConfig};
//!
//! let config = EtcdConfig::from_url("etcd://user:secret@e1,e2,e3/shop/locks")?;
//! let locks = Locks::new(Etcd::connect(config).await?)?;
//! let guard = locks.mutex("inventory/42")?.lock().await?;
//! # guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # URLs
//!
//! `etcd://[user:password@]host[:port][,host[:port]...][/root]`; `etcds` is the same with TLS
//! (feature `tls`). The hosts are members of one cluster, not gRPC proxies.
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `dlock.root` | the prefix of all keys; the same as the path of the URL | `/dlock` |
//! | `dlock.session_timeout` | how long the servers keep the session of a silent client; `2s` to `5m`, in whole seconds | `15s` |
//! | `dlock.tls_ca` | PEM file of the authorities to trust; required with `etcds` | |
//! | `dlock.tls_cert`, `dlock.tls_key` | PEM files of the client's own certificate and key | |
//!
//! It needs etcd 3.4 or later, and the right to read and write all keys below the root.
//!
//! # Sessions and leases
//!
//! One lease of etcd, the session, serves all claims of a backend. If the process dies, its locks
//! are free after the session timeout. While the process lives, its client ends claims that are not
//! renewed, by its own clock. dlock's core uses leases of at most two thirds of the session timeout,
//! and one small heartbeat renews all locks of a process. When a session ends, all its guards are
//! lost and notified at once, and its waiters send new claims in the next session. A guard is also
//! lost if another client deletes its key: this is noticed a second after the grant or later.
//!
//! A heartbeat is a keepalive, which proves nothing by itself, and two votes behind it: `proof.rs`
//! explains why a holder may rely on that. It counts only in the term in which the lease was granted,
//! since a former leader may end the leases that it remembers. So after each election the session
//! continues with a new lease, and writes the keys of its claims again (`lease.rs`).
//!
//! # Protocol
//!
//! `key.rs` lists the keys, `record.rs` the values. The queue of a lock is the order of the create
//! revisions, and its longest prefix that fits holds the lock (`queue.rs`).
//!
//! - *Acquire*: one transaction creates the key and reads what is before it (`acquire.rs`). The
//!   fencing token is the create revision times 32,768, which leaves room for local hand-off.
//! - *Hand-off*: a waiter watches the one key that blocks it, and reads when that has changed. The
//!   next in line for a mutex needs no read (`wait.rs`).
//! - *Many locks*: those that a process acquires and releases at the same time share transactions
//!   (`batch.rs`).
//! - *Unknown outcomes*: each creation compares the epoch of the session, which the client raises
//!   after an unknown outcome (`epoch.rs`). Releases are sent until they are answered.
//! - *Multi-locks*: one transaction creates all keys, of at most 63 names.
//!
//! # Go and etcdctl
//!
//! A mutex is the mutex of Go's package `concurrency`, of `etcdctl lock` and of etcd's Lock service,
//! and they exclude each other in one queue. `dlock.root=/app/locks` and the name `orders` is
//! `concurrency.NewMutex(session, "/app/locks/orders")`. In names, `/` and `%` are percent-encoded,
//! since Go's mutexes nest: one named like the root waits for all of dlock's locks. All of these
//! clients have to be of version 3.5 or later. A waiter of 3.4 comes in if its own key has gone, even
//! while another holds the lock. To share fencing tokens with dlock, a Go program multiplies the
//! create revision of its key by 32,768; the revision in the header of its last answer is another
//! number.

mod acquire;
mod backend;
mod batch;
mod batch_queue;
mod claim;
mod client;
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
mod key;
mod lease;
mod list;
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
mod wait;

pub use backend::{Etcd, FACTORY};
pub use config::EtcdConfig;
