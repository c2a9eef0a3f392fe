//! A lock that is lost while its command runs.

use dlock_testlab::{
    judge,
    redis::{Options, RedisServer},
};

use crate::support::{Dlock, Running};

#[test]
fn a_broken_lock_ends_its_command() {
    let dlock = Dlock::on_sqlite();
    let script = "trap 'echo ended; exit 0' TERM; echo held; while :; do sleep 0.05; done";
    let held = dlock.hold(&["--name", "a", "--lease", "1s"], script);
    let token = dlock.inspect("a")["holders"][0]["token"].clone();
    let broken = dlock.json(&["break", "a", "--yes", "--json"]);
    assert_eq!(broken["taken"][0]["token"], token);
    let went = held.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(123), "ended\n"), "{went:?}");
    assert!(went.err.contains("was lost") && went.err.contains("run it again"), "{went:?}");
    assert_eq!(dlock.inspect("a")["free"], true);
}

#[test]
fn a_command_that_ignores_term_is_killed_with_its_children() {
    let dlock = Dlock::on_sqlite();
    let script = "trap '' TERM; (sleep 100; echo survived) & echo held; sleep 100; echo survived";
    let args = ["--name", "a", "--lease", "1s", "--kill-after", "300ms", "--json"];
    let held = dlock.hold(&args, script);
    dlock.out(&["break", "a", "--yes"]);
    let went = held.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(123), ""), "{went:?}");
    let event: serde_json::Value = serde_json::from_str(went.err.lines().next().unwrap()).unwrap();
    assert_eq!(event["event"], "lost");
}

#[test]
fn processes_that_outlive_the_command_are_killed() {
    let dlock = Dlock::on_sqlite();
    let script = "(trap '' TERM; sleep 100; echo survived) & echo held; wait";
    let held = dlock.hold(&["--name", "a", "--lease", "1s", "--kill-after", "300ms"], script);
    dlock.out(&["break", "a", "--yes"]);
    let went = held.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(123), ""), "{went:?}");
}

#[test]
fn a_command_that_ends_after_its_lock_was_lost_is_a_failure() {
    let dlock = Dlock::on_sqlite();
    // Its lease is long, so that nobody has noticed yet.
    let held = dlock.hold(&["--name", "a", "--lease", "10m"], "echo held; cat; exit 0");
    dlock.out(&["break", "a", "--yes"]);
    let went = held.finish();
    assert_eq!(went.code, Some(123), "{went:?}");
    assert!(went.err.contains("ended with 0"), "{went:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_unreachable_for_a_lease_ends_the_command() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        let dlock = Dlock::on(server.url());
        let script = "trap 'echo ended; exit 0' TERM; echo held; while :; do sleep 0.05; done";
        let args = ["run", "--name", "a", "--lease", "2s", "--", "sh", "-c", script];
        let mut held = Running::start(dlock.command(&args));
        assert_eq!(held.line(), "held");
        server.pause()?;
        let line = held.line();
        server.resume()?;
        let went = held.ended();
        assert_eq!((line.as_str(), went.code), ("ended", Some(123)), "{went:?}");
        assert!(went.err.contains("its lease ended"), "{went:?}");
        Ok(())
    };
    judge("redis", tested.await);
}
