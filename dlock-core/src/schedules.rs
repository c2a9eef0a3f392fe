//! Scenarios that run under thousands of random schedules: see `scripts/schedules`.
//!
//! Each is a handful of tasks over a store in memory that counts what it is told. At the end of
//! every schedule [`world`] looks whether anything was left behind; a task that is never woken is
//! found by shuttle, as a deadlock. Below `plants` the primitives are broken on purpose, and each
//! scenario has to notice.

mod end;
mod hand_off;
mod leave;
mod part;
mod plants;
mod renewal;
mod world;

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use crate::sync::{Plant, plant, time};

/// How many random schedules a scenario passes; `DLOCK_SCHEDULES` overrules it.
const SCHEDULES: usize = 20_000;

/// In how many random schedules what is broken has to be noticed: the search ends when it is, and
/// the rarest (a turn that is lost to a time-out) is so in one of about ten thousand.
const SEARCHED: usize = 20 * SCHEDULES;

/// Runs the scenario under random schedules, and a tenth as many that change hands seldom, where
/// the depth of a mistake counts rather than its place.
fn check<F: Future + Send + 'static>(scenario: fn() -> F) {
    let wanted = std::env::var("DLOCK_SCHEDULES").ok();
    let schedules = wanted.and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES);
    run(RandomScheduler::new(schedules), scenario);
    run(PctScheduler::new(3, schedules / 10), scenario);
}

/// The scenario must notice that this is broken, and say so.
fn notices<F: Future + Send + 'static>(broken: Plant, scenario: fn() -> F, says: &str) {
    let found = std::thread::spawn(move || {
        plant(broken);
        run(RandomScheduler::new(SEARCHED), scenario);
    });
    let Err(panic) = found.join() else {
        panic!("{broken:?} went unnoticed in {SEARCHED} schedules");
    };
    // Unwinding may fail a second time, in shuttle, and hide the complaint.
    if let Some(text) = panic.downcast_ref::<String>() {
        assert!(text.contains(says), "another complaint: {text}");
    }
}

fn run<F: Future + Send + 'static>(scheduler: impl Scheduler + 'static, scenario: fn() -> F) {
    let mut config = Config::new();
    config.stack_size = 0x40000;
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    Runner::new(scheduler, config).run(move || {
        time::begin();
        shuttle::future::block_on(async move { drop(scenario().await) });
    });
}
