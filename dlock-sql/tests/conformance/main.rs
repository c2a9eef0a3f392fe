//! The conformance suite on every dialect: a file of SQLite, PostgreSQL, PostgreSQL behind a
//! transaction pooler, MariaDB, and MariaDB by the statements that MySQL has.

#[cfg(all(feature = "mysql", feature = "postgres"))]
mod servers;
#[cfg(feature = "sqlite")]
mod sqlite;

use dlock_testkit::Store;

fn main() {
    let stores: [Vec<Box<dyn Store>>; 2] = [
        #[cfg(feature = "sqlite")]
        vec![Box::new(sqlite::Files)],
        #[cfg(not(feature = "sqlite"))]
        vec![],
        #[cfg(all(feature = "mysql", feature = "postgres"))]
        servers::all(),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        vec![],
    ];
    dlock_testkit::run_each(stores.into_iter().flatten().collect())
}
