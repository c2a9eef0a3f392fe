//! Inputs for parsers: random bytes, and texts that are almost valid.
//!
//! In each test run, the crates try their laws (the modules `fuzzing`) on these inputs for a few
//! seconds. `proof/fuzz/` tries the same laws without a time limit.

use proptest::{
    prelude::*,
    test_runner::{Config, TestError, TestRunner},
};

/// The number of inputs of each kind that a law is tried on.
const CASES: u32 = 700;

/// Tries a law on three kinds of input: random bytes, texts that are joined from these pieces, and
/// such texts with some bytes changed.
///
/// # Panics
/// If the law is broken, with the smallest input found that breaks it.
pub fn try_on(pieces: &'static [&'static str], law: fn(&[u8])) {
    let few = || prop::collection::vec(any::<u8>(), 0..64);
    check(few(), law);
    check(glued(pieces), law);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let changed = (glued(pieces), changes).prop_map(|(mut text, changes)| {
        for (at, byte) in changes {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = byte;
            }
        }
        text
    });
    check(changed, law);
}

fn glued(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(str::to_owned),
        1 => "\\PC{0,4}",
        1 => any::<u64>().prop_map(|number| number.to_string()),
        1 => any::<u8>().prop_map(|number| number.to_string()),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat().into_bytes())
}

fn check(inputs: impl Strategy<Value = Vec<u8>>, law: fn(&[u8])) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&inputs, |input| {
        law(&input);
        Ok(())
    });
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => {
            panic!("broken by {:?} ({input:?}): {why}", String::from_utf8_lossy(&input))
        }
        Err(TestError::Abort(why)) => panic!("not tried: {why}"),
    }
}
