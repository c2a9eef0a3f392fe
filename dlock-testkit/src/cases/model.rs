//! Compares random operations of several clients with the sequential model, step by step.

use dlock_core::Fairness;
use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseError, TestRunner},
};
use tokio::runtime::Handle;

use crate::{Stop, Verdict, context::Cx, play, suite::HANGS};

/// The number of sequences, and the largest number of steps in one.
const SEQUENCES: u32 = 64;
const STEPS: usize = 40;

pub(crate) async fn random_verbs_do_what_the_model_does(cx: Cx) -> Verdict {
    let fifo = cx.guarantees().fairness == Fairness::Fifo;
    let permits = crate::case::Need::Permits.missing_in(&cx.guarantees(), None).is_none();
    let strategy = play::verbs::sequences(fifo, permits, STEPS);
    let of = cx.clone();
    every(&cx, &strategy, move |steps| play::verbs::run(of.clone(), steps))
}

pub(crate) async fn random_guards_do_what_the_model_does(cx: Cx) -> Verdict {
    let permits = crate::case::Need::Permits.missing_in(&cx.guarantees(), None).is_none();
    let strategy = play::guards::sequences(permits, STEPS);
    let of = cx.clone();
    every(&cx, &strategy, move |steps| play::guards::run(of.clone(), steps))
}

/// Plays many sequences, and reports the shortest one that fails.
fn every<S, F>(cx: &Cx, strategy: &S, run: impl Fn(S::Value) -> F) -> Verdict
where
    S: Strategy,
    F: Future<Output = Verdict>,
{
    let config = Config {
        cases: cx.effort(SEQUENCES),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let runtime = Handle::current();
    let result = tokio::task::block_in_place(|| {
        TestRunner::new(config).run(strategy, |steps| {
            let one = async { tokio::time::timeout(cx.bound() * HANGS, run(steps)).await };
            let verdict = runtime.block_on(one).unwrap_or_else(|_| Err(Stop::failed("it hangs")));
            // Each completed sequence restarts the bound that detects a hanging case.
            cx.goes_on();
            verdict.map_err(|stop: Stop| TestCaseError::fail(stop.into_text()))
        })
    });
    Ok(result?)
}
