//! The tests of each model: every reachable state keeps the promises, and without any one of the
//! rules some state does not.

use dlock_models::{self as all, etcd};

/// The tests of the models in this module.
macro_rules! models {
    ($module:ident: $($model:ident)+) => {$(
        mod $model {
            use super::$module::$model::{RULES, visit, without};

            #[test]
            fn no_state_breaks_a_promise() {
                visit();
            }

            #[test]
            fn every_rule_is_needed() {
                for (rule, property) in RULES {
                    without(rule, property);
                }
            }
        }
    )+};
}

models! {
    all: hand_off late_renewal lease multi multi_stores quorum redis_guard redis_hand_off redis_keys
        redis_late redis_take redis_tokens sql_queue zookeeper zookeeper_session
}
models! { etcd: local_deadline queue }

#[test]
fn every_model_is_tested() {
    let tested = include_str!("models.rs");
    let there = [include_str!("../src/lib.rs"), include_str!("../src/etcd/mod.rs")];
    let there = there.iter().flat_map(|file| file.lines());
    for model in there.filter_map(|line| line.strip_prefix("pub mod ")) {
        let model = model.trim_end_matches(';');
        let is_no_model = ["check", "etcd"].contains(&model);
        let is_tested = tested.split_whitespace().any(|word| word == model);
        assert!(is_no_model || is_tested, "{model}");
    }
}
