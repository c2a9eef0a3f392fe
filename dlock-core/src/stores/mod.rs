//! Stores without further dependencies: the memory of this process, and backends that wrap others.

pub(crate) mod memory;
pub(crate) mod wrap;
