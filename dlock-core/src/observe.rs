//! The events and spans that dlock emits through [`tracing`](https://docs.rs/tracing). Target,
//! message, level and the fields named here are API; later versions may add fields and events.
//!
//! All of them have the target `dlock`, so `RUST_LOG=dlock=debug` shows them.
//!
//! # Events
//!
//! | message | level | fields | meaning |
//! |---|---|---|---|
//! | `lock acquired after a wait` | debug | `lock.name`, `backend`, `token`, `wait` | a claim that was queued in the store holds the lock |
//! | `acquire failed, will be retried` | debug | `error`, `pause` | the store is unreachable while a task waits for a lock |
//! | `election failed, will be retried` | debug | `error` | the same for a candidate |
//! | `renewal failed, will be retried` | warn | `error`, `claims` | the number of locks in doubt; they are lost unless a retry succeeds |
//! | `lock lost` | warn | `lock.name`, `backend`, `token`, `reason` | the holder must stop; [`Ended`](crate::Ended) lists the reasons |
//! | `lease shortened` | warn | `backend`, `asked`, `lease`, `remedy` | the store supports shorter leases than [`LockOptions`](crate::LockOptions) ask for; emitted once for each longer lease |
//! | `store lost its data` | warn | `backend`, `lock.name` | the store granted a lock to others while it was held |
//! | `store clock stepped` | warn | `backend`, `direction`, `by` | leases end early (`forward`) or late (`back`) |
//! | `waiting for a lock that this process holds` | warn | `lock.name`, `backend`, `held` | tasks have waited for one lease for a lock that their own process holds; a task that locks a mutex twice waits for itself. Once for a mutex, once for each wait of the other kinds |
//! | `lock force-released` | warn | `lock.name`, `backend`, `token` | this process called [`Locks::force_release`](crate::Locks::force_release) |
//! | `release of a dropped guard failed` | warn | `error` | the lock is free when its lease expires; if the store was unreachable, the release was retried for 30 s |
//! | `release failed after its future was dropped` | warn | `error` | the same, for a `release()` that was cancelled |
//! | `cancel of a claim failed` | warn | `error` | the same, for an acquire that was cancelled |
//! | `release failed after the work was done` | warn | `error` | the same, for a lock that ran work |
//! | `release of leadership failed` | warn | `error` | the same, for an [`Election`](crate::Election) |
//! | `minimum time of a job was cut short` | warn | `lock.name`, `reason` | the lock of a [`Job`](crate::Job) was lost before its minimum time ended |
//!
//! Events of single stores:
//!
//! | message begins with | level | fields | store, and meaning |
//! |---|---|---|---|
//! | `server settings changed` | warn, info | | Redis (with field `store`), PostgreSQL, MySQL: a restart or crash may now lose grants; on Redis also that it no longer does |
//! | `server may evict keys of held locks` | warn | `store`, `policy` | Redis: the `maxmemory-policy` is not `noeviction` |
//! | `pub/sub not permitted` | warn | `error`, `store` | Redis: waiters poll |
//! | `quorum master unusable` | warn | `error`, `store` | Redis: the quorum tolerates fewer failures |
//! | `lease too short for dlock.response_timeout` | warn | `lease`, `response_timeout` | PostgreSQL, MySQL |
//! | `some renewals of a batch failed` | warn | `error`, `failed` | PostgreSQL, MySQL, SQLite |
//! | `sweep of unused rows failed` | warn | `error` | PostgreSQL, MySQL, SQLite: retried in the next round; until then the table grows |
//! | `pooled connection` | warn | | PostgreSQL, MySQL: the application left a pooled connection in a state that dlock cannot use; dlock closed it |
//! | `LISTEN failed` | warn | `error` | PostgreSQL: waiters poll |
//! | `session lost with all its locks` | warn | `error` | PostgreSQL, advisory form |
//! | `unlock refused, will be repeated` | warn | `error` | the same: the server refused to free a lock, for example for want of a right |
//! | `database not in WAL mode` | warn | `journal` | SQLite |
//! | `session timeout not above syncLimit` | warn | `store`, `session_timeout`, `sync_limit` | ZooKeeper |
//! | `server older than supported` | warn | `store`, `version` | ZooKeeper: the server lacks something that dlock uses |
//! | `new ZooKeeper session` | info | `store` | ZooKeeper: the previous session ended |
//! | `ZooKeeper session failed` | warn | `error` | ZooKeeper |
//! | `removing a claim failed` | warn | `error`, `lock.name` | ZooKeeper, etcd: the servers refused to delete a node or key, which is repeated |
//! | `session replaced, since claims could not be removed from it` | warn | | ZooKeeper, etcd: deletions were refused for a lease, and the session had no other claims |
//! | `ZooKeeper driver task ended` | warn | | ZooKeeper |
//! | `downgrade failed` | warn | `error` | ZooKeeper, etcd |
//! | `new etcd session` | info | `store` | etcd: the previous session ended |
//! | `etcd session failed` | warn | `error` | etcd |
//! | `deleting a key failed` | warn | `failure` | etcd: a deletion was not answered, which is repeated |
//!
//! Other events have the level debug. Their text may change.
//!
//! Times (`wait`, `pause`, `by`, `asked`, `lease`) are formatted as a `Duration` by Rust. `backend`
//! is the value of [`Backend::store`](crate::Backend::store): kind and address, without secrets.
//!
//! # Spans
//!
//! Each verb that sends a request to the store is a span of level debug: [`Traced`](crate::Traced)
//! lists them. `connect` wraps every store in it.
