//! Histories under faults: processes acquire and release locks at random under faults of the
//! processes, the server and the network. Holders that exclude each other never overlap, tokens
//! stay in order, and in the end all locks are free and no transaction is open.
//!
//! `DLOCK_TEST_EFFORT=20` injects faults for twenty times as long, `0.33` for a third.

mod cleanup;
mod holders;
mod lost;
mod network;
mod server;

use dlock_core::{DynBackend, Error, Registry};
use dlock_soak::{Scenario, run};
use dlock_sql::{MYSQL, POSTGRES};
use dlock_testkit::Verdict;

use crate::server::Kind;

async fn connect(address: String) -> Result<DynBackend, Error> {
    let registry = Registry::new().with(POSTGRES).with(MYSQL);
    registry.connect(address.parse()?, &[]).await
}

/// The case on each kind of server.
fn on_each<F>(name: &str, case: fn(Kind) -> F) -> [Scenario; 2]
where
    F: Future<Output = Verdict> + 'static,
{
    let of =
        |store, kind| Scenario::new(&format!("{store}::{name}"), move || case(kind)).over(store);
    [of("postgres", Kind::Postgres), of("mysql", Kind::Mysql)]
}

fn main() {
    let mut scenarios = Vec::new();
    scenarios.extend(on_each("holders::are_killed", holders::are_killed));
    scenarios.extend(on_each("holders::are_stopped_past_their_leases", holders::are_stopped));
    scenarios.extend(on_each("holders::change_their_minds", holders::change_their_minds));
    scenarios.extend(on_each("server::is_killed", server::is_killed));
    scenarios.extend(on_each("server::loses_its_last_writes", lost::writes));
    scenarios.extend(on_each("server::is_paused", server::is_paused));
    scenarios.extend(on_each("server::ends_its_sessions", server::ends_its_sessions));
    scenarios.extend(on_each("network::connections_are_cut", network::connections_are_cut));
    scenarios.extend(on_each("network::replies_are_lost", network::replies_are_lost));
    scenarios.extend(on_each("all_at_once", network::all_at_once));
    run("postgres", connect, scenarios)
}
