//! Histories under faults: processes that take and let go of locks at random while they, the
//! servers and the network between them are harmed. No two may ever believe to hold what excludes
//! each other, no token may be out of order, and in the end all locks are free.
//!
//! `DLOCK_TEST_EFFORT=20` does harm for twenty times as long.

mod holders;
mod left;
mod storm;

use dlock_core::{DynBackend, Error};
use dlock_redis::{Redis, RedisConfig};
use dlock_testkit::load::{Scenario, run};

async fn connect(address: String) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(&address)?).await
}

fn main() {
    run(
        "redis",
        connect,
        vec![
            Scenario::new("holders::are_killed", holders::are_killed),
            Scenario::new("holders::are_stopped_past_their_leases", holders::are_stopped),
        ],
    )
}
