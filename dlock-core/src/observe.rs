//! What dlock tells of itself through [`tracing`](https://docs.rs/tracing). Target, message, level
//! and the fields named here are kept as they are from version to version; others may come.
//!
//! All have the target `dlock`, so `RUST_LOG=dlock=debug` shows them.
//!
//! # Events
//!
//! | message | level | fields | means |
//! |---|---|---|---|
//! | `lock acquired after a wait` | debug | `lock.name`, `backend`, `token`, `wait` | a claim that stood in the store's queue is held |
//! | `acquire failed, will be retried` | debug | `error`, `pause` | the store was out of reach while a lock was waited for |
//! | `election failed, will be retried` | debug | `error` | the same of a candidate |
//! | `renewal failed, will be retried` | warn | `error`, `claims` | so many locks are in doubt; they are lost unless a retry comes through |
//! | `lock lost` | warn | `lock.name`, `backend`, `token`, `reason` | its holder has to stop; [`Ended`](crate::Ended) has the reasons |
//! | `lease shortened` | warn | `backend`, `asked`, `lease`, `remedy` | the store stands for shorter leases than [`LockOptions`](crate::LockOptions) ask for; told once for each longer one |
//! | `store lost its data` | warn | `backend`, `lock.name` | it let others in while a lock was held |
//! | `store clock stepped` | warn | `backend`, `direction`, `by` | leases end early (`forward`) or late (`back`) |
//! | `waiting for a lock that this process holds` | warn | `lock.name`, `backend`, `held` | tasks of one process have waited for a lease for what the process holds; a task that takes a lock twice waits for itself. Once for a mutex, once for each wait of the other kinds |
//! | `lock force-released` | warn | `lock.name`, `backend`, `token` | [`Locks::force_release`](crate::Locks::force_release) was called here |
//! | `release of a dropped guard failed` | warn | `error` | its lease frees the lock; if the store was away, the release goes on for 30 s |
//! | `release failed after its future was dropped` | warn | `error` | the same, of a release whose future was dropped |
//! | `cancel of a claim failed` | warn | `error` | the same, of an acquire whose future was dropped |
//! | `release failed after the work was done` | warn | `error` | the same, of a lock that ran work |
//! | `release of leadership failed` | warn | `error` | the same, of an [`Election`](crate::Election) |
//! | `sweep of unused rows failed` | warn | `error` | a SQL store tries again in its next round; until then its table grows |
//! | `minimum time of a job was cut short` | warn | `lock.name`, `reason` | the lock of a [`Job`](crate::Job) was lost when it ended |
//!
//! Times (`wait`, `pause`, `by`, `asked`, `lease`) are shown as Rust shows a `Duration`. `backend` is what
//! [`Backend::store`](crate::Backend::store) says: kind and address, without secrets.
//!
//! # Spans
//!
//! Each verb that goes to the store is a span of level debug: [`Traced`](crate::Traced) lists them.
//! `connect` puts it around every store.
