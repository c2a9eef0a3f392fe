//! The Rust code of the guide: each block is a test of `cargo test --doc`.

#[doc = include_str!("../../../docs/src/first-lock.md")]
struct FirstLock;

#[doc = include_str!("../../../docs/src/choosing.md")]
struct Choosing;

#[doc = include_str!("../../../docs/src/fencing.md")]
struct Fencing;

#[doc = include_str!("../../../docs/src/leases.md")]
struct Leases;

#[doc = include_str!("../../../docs/src/lease-and-wait.md")]
struct LeaseAndWait;

#[doc = include_str!("../../../docs/src/operating.md")]
struct Operating;

#[doc = include_str!("../../../docs/src/operating-sql.md")]
struct OperatingSql;

#[doc = include_str!("../../../docs/src/kinds.md")]
struct Kinds;

#[doc = include_str!("../../../docs/src/testing.md")]
struct Testing;

#[doc = include_str!("../../../docs/src/over-the-lock.md")]
struct OverTheLock;

#[doc = include_str!("../../../docs/src/own-backend.md")]
struct OwnBackend;
