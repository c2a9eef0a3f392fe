//! The conformance suite on every dialect: a file of SQLite, PostgreSQL, PostgreSQL behind a
//! transaction pooler, MariaDB, and MariaDB by the statements that MySQL has.

#[cfg(all(feature = "mysql", feature = "postgres"))]
mod servers;
#[cfg(feature = "sqlite")]
mod sqlite;

use dlock_testkit::Store;

fn main() {
    let mut stores: Vec<Box<dyn Store>> = Vec::new();
    #[cfg(feature = "sqlite")]
    stores.push(Box::new(sqlite::Files));
    #[cfg(all(feature = "mysql", feature = "postgres"))]
    stores.extend(servers::all());
    dlock_testkit::run_each(stores)
}
