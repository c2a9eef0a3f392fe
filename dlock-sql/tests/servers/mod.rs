//! Tests that PostgreSQL and MariaDB both pass. The test program of each database includes this
//! folder, and its `support` has the same names for its types, its servers and its differences.

pub(crate) mod connections;
mod faults;
pub(crate) mod late;
mod pool;
mod rows;
mod schema;
