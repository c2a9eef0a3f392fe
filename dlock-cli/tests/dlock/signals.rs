//! Signals that `dlock run` is sent.

use std::io::Write;

use dlock_testlab::is_stopped;
use rustix::process::Signal;

use crate::support::{Dlock, HOLD, Running, until};

/// Says which signals it gets, and the lines that it reads. A signal may end a read, so it takes
/// several that fail for the end of its stdin.
const LISTEN: &str = "for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo got $s\" $s; done
echo held; n=0
while [ $n -lt 50 ]; do if read -r line; then echo \"$line\"; n=0; else n=$((n+1)); fi; done";

#[test]
fn each_signal_reaches_the_command_once() {
    for how in [&[][..], &["--foreground"]] {
        let dlock = Dlock::on_sqlite();
        let mut held = dlock.hold(&[&["--name", "a"], how].concat(), LISTEN);
        for (signal, name) in [
            (Signal::TERM, "TERM"),
            (Signal::INT, "INT"),
            (Signal::HUP, "HUP"),
            (Signal::QUIT, "QUIT"),
            (Signal::USR1, "USR1"),
            (Signal::USR2, "USR2"),
        ] {
            held.signal(signal);
            assert_eq!(held.line(), format!("got {name}"), "{how:?}");
            // A second one would stand before this.
            held.stdin().write_all(b"on\n").unwrap();
            assert_eq!(held.line(), "on", "{how:?}");
        }
        assert_eq!(held.finish().code, Some(0), "{how:?}");
    }
}

#[test]
fn the_lock_is_held_until_the_command_has_ended() {
    let dlock = Dlock::on_sqlite();
    let script = "trap 'echo got; read -r line; exit 5' TERM; echo held; read -r line";
    let mut held = dlock.hold(&["--name", "a"], script);
    held.signal(Signal::TERM);
    assert_eq!(held.line(), "got");
    assert_eq!(dlock.inspect("a")["holders"].as_array().unwrap().len(), 1);
    assert_eq!(held.finish().code, Some(5));
    assert_eq!(dlock.inspect("a")["free"], true);
}

#[test]
fn a_signal_during_the_wait_removes_it_from_the_queue() {
    let dlock = Dlock::on_sqlite();
    let held = dlock.hold(&["--name", "a"], HOLD);
    let waiting = Running::start(dlock.command(&["run", "--name", "a", "--", "echo", "ran"]));
    let queue = || dlock.inspect("a")["waiters"].as_array().unwrap().len();
    until("it waits", || queue() == 1);
    waiting.signal(Signal::TERM);
    let went = waiting.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(128 + 15), ""), "{went:?}");
    assert_eq!(queue(), 0);
    assert_eq!(held.finish().code, Some(0));
}

#[test]
fn a_signal_ignored_at_the_start_stays_ignored() {
    let dlock = Dlock::on_sqlite();
    let mut command = std::process::Command::new("sh");
    command
        .env("DLOCK_URL", &dlock.url)
        .env("DLOCK", env!("CARGO_BIN_EXE_dlock"))
        .args(["-c", "trap '' HUP; exec \"$DLOCK\" run --name a -- sh -c 'echo held; cat'"]);
    let mut held = Running::start(command);
    assert_eq!(held.line(), "held");
    held.signal(Signal::HUP);
    held.stdin().write_all(b"lives\n").unwrap();
    let went = held.finish();
    assert_eq!((went.code, went.out.as_str()), (Some(0), "lives\n"), "{went:?}");
}

#[test]
fn it_stops_and_goes_on_together_with_the_command() {
    let dlock = Dlock::on_sqlite();
    let script = "trap 'echo resumed' CONT; echo held; echo $$; n=0
while [ $n -lt 50 ]; do if read -r line; then echo \"$line\"; n=0; else n=$((n+1)); fi; done";
    let mut held = dlock.hold(&["--name", "a"], script);
    let command: u32 = held.line().parse().unwrap();
    held.signal(Signal::TSTP);
    until("both are stopped", || is_stopped(held.id()) && is_stopped(command));
    held.signal(Signal::CONT);
    assert_eq!(held.line(), "resumed");
    held.stdin().write_all(b"on\n").unwrap();
    let went = held.finish();
    assert_eq!((went.code, went.out.as_str()), (Some(0), "on\n"), "{went:?}");
}
