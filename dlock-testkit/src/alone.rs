//! Tests outside of the kit: the stores that must not be missing, and the repetition in a process of
//! its own.

use std::{any::type_name, env, process::Command, time::Duration};

use tokio::{runtime::Runtime, time::timeout};

use crate::{Outcome, Stop, Verdict, stalls::repeated_once, suite::no_panic};

/// The variable with the required stores, separated by commas.
pub(crate) const REQUIRE: &str = "DLOCK_TEST_REQUIRE";

/// Whether the tests fail if this store is missing.
pub fn is_required(store: &str) -> bool {
    is_listed(store, &std::env::var(REQUIRE).unwrap_or_default())
}

fn is_listed(store: &str, list: &str) -> bool {
    list.split(',').any(|word| word.trim() == store)
}

/// Ends a test that needs this store. A failure becomes a panic. A missing store becomes a panic if
/// `DLOCK_TEST_REQUIRE` lists it; otherwise the reason is printed and the test passes.
///
/// # Panics
/// If the test failed or a required store is missing, with the reason.
#[track_caller]
pub fn judge(store: &str, verdict: Verdict) {
    match Outcome::from(verdict) {
        Outcome::Passed => {}
        Outcome::Ignored { reason, store_missing: true } if is_required(store) => {
            panic!("{REQUIRE} names {store}, and it is missing: {reason}")
        }
        Outcome::Ignored { reason, .. } => println!("ignored: {reason}"),
        Outcome::Failed(what) => panic!("{what}"),
    }
}

/// The variable that says that this process is the second run of a test.
const REPEATED: &str = "DLOCK_TEST_REPEATED";

/// The lease of which a stall is a relevant part.
const LEASE: Duration = Duration::from_secs(1);

/// Runs the body of a `#[test]` that needs this store on a runtime, and ends it as [`judge`] does. It
/// fails if it takes longer than `bound`, which is a backstop for code that hangs.
///
/// If it fails while the machine stalls for a quarter of a second or longer within one second, the
/// test is repeated once, in a process of its own, while no other test of this process runs. A line
/// on standard error says so: `repeated: TEST: REASON (the machine stalled for 420 ms)`. A
/// [violation](Stop::violation) is never repeated.
///
/// # Panics
/// If the test failed or a required store is missing, with the reason.
#[track_caller]
pub fn run_test<F: Future<Output = Verdict>>(
    store: &str,
    runtime: Runtime,
    bound: Duration,
    body: F,
) {
    let run = || {
        no_panic(|| {
            runtime.block_on(async {
                let hangs = |_| Err(Stop::failed(format!("not over within {bound:?}")));
                timeout(bound, body).await.unwrap_or_else(hangs)
            })
        })
    };
    let name = name::<F>();
    let verdict = match env::var_os(REPEATED) {
        Some(_) => run(),
        None => repeated_once(&name, LEASE, run, || in_a_process(&name)),
    };
    judge(store, verdict);
}

/// Returns the name of the running test. Its thread has it, unless tests run one after the other:
/// then its body has it, which is part of the function.
fn name<F>() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => {
            let body = type_name::<F>().split("::{{").next().unwrap_or_default();
            body.split_once("::").map_or(body, |(_, path)| path).to_owned()
        }
    }
}

/// Runs this test of this program again.
fn in_a_process(name: &str) -> Verdict {
    let args = ["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"];
    let output = Command::new(env::current_exe()?).args(args).env(REPEATED, "yes").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Without a test of this name, none fails.
    match output.status.success() && text.contains(" 1 passed;") {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(Stop::failed(format!("it failed again:\n{text}\n{errors}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stop, stalls::stall};

    #[test]
    fn only_listed_stores_are_required() {
        assert!(is_listed("zk", "redis, zk"));
        assert!(!is_listed("zk", "zookeeper"));
        assert!(!is_listed("zk", ""));
    }

    #[test]
    #[should_panic(expected = "broken")]
    fn a_failure_is_a_panic() {
        judge("none", Err(Stop::failed("broken")));
    }

    #[test]
    fn a_missing_program_that_is_not_required_passes() {
        judge("none", Err(Stop::missing("not installed")));
    }

    fn body<F: Future<Output = Verdict>>(_: F) -> String {
        name::<F>()
    }

    #[test]
    fn a_test_knows_its_name() {
        let named = body(async { Ok(()) });
        assert_eq!(named, "alone::tests::a_test_knows_its_name");
        let thread = std::thread::Builder::new().name("main".to_owned());
        let named = thread.spawn(|| body(async { Ok(()) })).unwrap().join().unwrap();
        assert_eq!(named, "alone::tests::a_test_knows_its_name");
    }

    #[test]
    fn a_test_that_does_not_exist_does_not_pass() {
        assert!(in_a_process("alone::tests::no_such_test").is_err());
    }

    /// The second run passes, and only that one.
    #[test]
    fn a_test_that_fails_while_the_machine_stalls_is_repeated() {
        let runtime = crate::suite::runtime().unwrap();
        run_test("none", runtime, Duration::from_secs(60), async {
            if env::var_os(REPEATED).is_some() {
                return Ok(());
            }
            stall(LEASE);
            Err(Stop::failed("on purpose"))
        });
    }
}
