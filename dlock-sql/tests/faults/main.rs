//! Histories under faults: processes acquire and release locks at random under faults of the
//! processes, the server and the network. Holders that exclude each other never overlap, tokens
//! stay in order, and in the end all locks are free and no transaction is open. The
//! [table](dlock_soak::SETUPS) of the soak has the topologies and their faults; a server that loses
//! its last writes is not among them.
//!
//! `DLOCK_TEST_EFFORT=20` injects faults for twenty times as long, `0.33` for a third.

mod lost;

use dlock_core::{DynBackend, Error, Registry};
use dlock_soak::{Scenario, run, scenarios};
use dlock_sql::{MYSQL, POSTGRES};

async fn connect(address: String) -> Result<DynBackend, Error> {
    let registry = Registry::new().with(POSTGRES).with(MYSQL);
    registry.connect(address.parse()?, &[]).await
}

fn main() {
    let mut all = scenarios("postgres", connect);
    all.extend(scenarios("mysql", connect));
    all.extend([
        Scenario::new("postgres::server_loses_its_last_writes", lost::writes_of_postgres),
        Scenario::new("mysql::server_loses_its_last_writes", lost::writes_of_mysql).over("mysql"),
    ]);
    run("postgres", connect, all)
}
