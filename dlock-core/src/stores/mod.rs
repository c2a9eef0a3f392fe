//! Stores that need nothing else: the memory of this process, and backends over backends.

pub(crate) mod memory;
pub(crate) mod wrap;
