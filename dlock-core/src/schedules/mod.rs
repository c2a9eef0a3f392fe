//! Scenarios that run under thousands of random schedules: see `scripts/schedules`.
//!
//! Each scenario is a few tasks over a store in memory that counts its requests. At the end of
//! every schedule, [`world`] checks whether anything was left behind. Shuttle reports a task that
//! is never woken as a deadlock. `mutants` breaks the primitives on purpose, and each scenario has
//! to detect it.

mod end;
mod hand_off;
mod leave;
mod mutants;
mod renewal;
mod world;

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use crate::sync::{Mutant, activate, time};

/// The number of random schedules of a scenario; `DLOCK_SCHEDULES` overrides it.
const SCHEDULES: usize = 20_000;

/// The number of random schedules within which a broken primitive must be detected. The search ends
/// at the first detection. The rarest, a turn that is lost to a timeout, is detected once in about
/// ten thousand schedules.
const SEARCHED: usize = 20 * SCHEDULES;

/// Runs the scenario under random schedules, and under a tenth as many that switch tasks rarely,
/// which find mistakes by their depth rather than by their place.
fn check<F: Future + Send + 'static>(scenario: fn() -> F) {
    let wanted = std::env::var("DLOCK_SCHEDULES").ok();
    let schedules = wanted.and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES);
    run(RandomScheduler::new(schedules), scenario);
    run(PctScheduler::new(3, schedules / 10), scenario);
}

/// Checks that the scenario detects this broken primitive and reports it.
fn notices<F: Future + Send + 'static>(broken: Mutant, scenario: fn() -> F, says: &str) {
    let found = std::thread::spawn(move || {
        activate(broken);
        run(RandomScheduler::new(SEARCHED), scenario);
    });
    let Err(panic) = found.join() else {
        panic!("{broken:?} went unnoticed in {SEARCHED} schedules");
    };
    // Unwinding may fail a second time, in shuttle, and hide the message.
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
