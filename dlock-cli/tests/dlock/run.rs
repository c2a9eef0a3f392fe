//! `dlock run`: exit codes, environment, waiting, exclusion, signals, lost locks, and runs within
//! runs.

use std::{
    io::Write,
    process::{Child, Command, Stdio},
};

use dlock_testlab::{
    is_stopped, judge,
    redis::{Options, RedisServer},
};
use rustix::process::Signal;

use crate::support::{Dlock, HOLD, Running, Went, bare, until, went, with_signals};

#[test]
fn the_exit_code_is_the_commands() {
    let dlock = Dlock::on_sqlite();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
        let went = dlock.went(&["run", "--name", "a", "--", "sh", "-c", script]);
        assert_eq!((went.code, went.err.as_str()), (Some(code), ""), "{script}");
        assert_eq!(dlock.inspect("a")["free"], true, "{script}");
    }
}

#[test]
fn a_command_that_cannot_start_has_a_shell_code_and_no_lock() {
    let dlock = Dlock::on_sqlite();
    let file = dlock.directory.path().join("data");
    std::fs::write(&file, "no program").unwrap();
    for (command, code) in [("no-such-command-anywhere", 127), (file.to_str().unwrap(), 126)] {
        let went = dlock.went(&["run", "--name", "a", "--", command]);
        assert_eq!(went.code, Some(code), "{went:?}");
        assert!(went.err.starts_with("dlock: ") && went.err.contains(command), "{went:?}");
        assert_eq!(dlock.inspect("a")["free"], true);
    }
}

#[test]
fn the_command_finds_name_and_growing_token_but_no_url() {
    let dlock = Dlock::on_sqlite();
    let script = "echo \"$DLOCK_NAME $DLOCK_TOKEN $DLOCK_URL.\"";
    let mut last = 0;
    for _ in 0..3 {
        let out = dlock.out(&["run", "--name", "jobs/7", "--", "sh", "-c", script]);
        let words: Vec<&str> = out.split_whitespace().collect();
        assert_eq!((words[0], words[2], words.len()), ("jobs/7", ".", 3), "{out}");
        let token: u64 = words[1].parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn the_command_gets_its_input_output_and_arguments() {
    let dlock = Dlock::on_sqlite();
    let script = "cat; echo \"$0 $1\" >&2";
    let command = dlock.command(&["run", "--name", "a", "sh", "-c", script, "--verbose", "--name"]);
    let mut running = Running::start(command);
    running.stdin().write_all(b"through\n").unwrap();
    let went = running.finish();
    assert_eq!((went.out.as_str(), went.err.as_str()), ("through\n", "--verbose --name\n"));
    assert_eq!(went.code, Some(0));
}

#[test]
fn a_busy_lock_has_a_code_of_its_own_which_can_be_another() {
    let dlock = Dlock::on_sqlite();
    let held = dlock.hold(&["--name", "a"], HOLD);
    for (args, code) in [
        (&["--wait", "0"][..], 124),
        (&["--wait", "2s"], 124),
        (&["--wait", "0", "--busy-code", "9"], 9),
        (&["--wait", "0", "--shared"], 124),
    ] {
        let all = [&["run", "--name", "a"], args, &["--", "echo", "ran"]].concat();
        let went = dlock.went(&all);
        assert_eq!((went.code, went.out.as_str()), (Some(code), ""), "{args:?}: {went:?}");
        let what = match args.contains(&"2s") {
            true => "timed out after 2s waiting for lock \"a\", held by 1 (",
            false => "lock \"a\" is busy, held by 1 (",
        };
        assert!(went.err.contains(what), "{went:?}");
    }
    // If a busy lock is a success, the command prints a message only on request.
    for (args, silent) in [(&[][..], true), (&["--verbose"], false)] {
        let all = [&["run", "-n", "a", "--wait", "0", "--busy-code", "0"], args, &["--", "echo"]];
        let went = dlock.went(&all.concat());
        assert_eq!((went.code, went.out.as_str()), (Some(0), ""), "{went:?}");
        assert_eq!(went.err.is_empty(), silent, "{went:?}");
    }
    // No claim has stayed in the queue, and another name is another lock.
    assert_eq!(dlock.inspect("a")["waiters"].as_array().unwrap().len(), 0);
    dlock.out(&["run", "--name", "b", "--wait", "0", "--", "true"]);
    assert_eq!(held.finish().code, Some(0));
    dlock.out(&["run", "--name", "a", "--wait", "0", "--", "true"]);
}

#[test]
fn it_waits_until_the_lock_is_free_and_says_for_whom() {
    let dlock = Dlock::on_sqlite();
    let held = dlock.hold(&["--name", "a"], HOLD);
    let token = dlock.inspect("a")["holders"][0]["token"].clone();
    let mut waiting =
        Running::start(dlock.command(&["run", "-n", "a", "-v", "--json", "--", "echo", "ran"]));
    let event: serde_json::Value = serde_json::from_str(&waiting.complaint()).unwrap();
    assert_eq!(event["event"], "waiting");
    assert_eq!(event["lock"]["holders"][0]["token"], token);
    assert_eq!(held.finish().code, Some(0));
    let went = waiting.finish();
    assert_eq!((went.code, went.out.as_str()), (Some(0), "ran\n"), "{went:?}");
    let events: Vec<serde_json::Value> =
        went.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["event"], "granted");
    assert!(events[0]["token"].as_u64() > token.as_u64());
    assert_eq!(events[1]["event"], "released");
}

#[test]
fn many_at_once_exclude_each_other() {
    let dlock = Dlock::on_sqlite();
    let script = "mkdir inside || echo MET >> log; sleep 0.02; rmdir inside; echo done >> log";
    let start = || -> Child {
        let args = ["run", "--name", "a", "--", "sh", "-c", script];
        dlock.command(&args).stderr(Stdio::null()).spawn().unwrap()
    };
    for _ in 0..3 {
        let all: Vec<Child> = std::iter::repeat_with(start).take(5).collect();
        for mut one in all {
            assert!(one.wait().unwrap().success());
        }
    }
    let log = std::fs::read_to_string(dlock.directory.path().join("log")).unwrap();
    assert_eq!(log, "done\n".repeat(15));
}

#[test]
fn readers_share_and_permits_are_counted() {
    let dlock = Dlock::on_sqlite();
    for (kind, other) in
        [(&["--shared"][..], &[][..]), (&["--semaphore", "2"], &["--semaphore", "2"])]
    {
        let kind = [&["--name", "a"], kind].concat();
        let (one, two) = (dlock.hold(&kind, HOLD), dlock.hold(&kind, HOLD));
        assert_eq!(dlock.inspect("a")["holders"].as_array().unwrap().len(), 2);
        let third = [&["run", "--name", "a", "--wait", "0"], other, &["--", "true"]].concat();
        assert_eq!(dlock.went(&third).code, Some(124), "{kind:?}");
        assert_eq!((one.finish().code, two.finish().code), (Some(0), Some(0)));
        assert_eq!(dlock.went(&third).code, Some(0), "{kind:?}");
    }
    let both = dlock.went(&["run", "-n", "a", "--shared", "--semaphore", "2", "true"]);
    assert_eq!(both.code, Some(125));
}

#[test]
fn a_store_of_one_process_is_refused() {
    let refused = went(&mut bare(&["run", "--url", "memory:", "--name", "a", "--", "echo", "ran"]));
    assert_eq!((refused.code, refused.out.as_str()), (Some(125), ""));
    assert!(refused.err.contains("protect nothing"), "{refused:?}");
}

/// The lease of a lock that is lost soon. A holder on a busy machine renews it in time.
const SHORT_LEASE: &str = "10s";

#[test]
fn a_broken_lock_ends_its_command() {
    let dlock = Dlock::on_sqlite();
    let script = "trap 'echo ended; exit 0' TERM; echo held; while :; do sleep 0.05; done";
    let held = dlock.hold(&["--name", "a", "--lease", SHORT_LEASE, "--verbose"], script);
    let token = dlock.inspect("a")["holders"][0]["token"].clone();
    let broken = dlock.json(&["break", "a", "--yes", "--json"]);
    assert_eq!(broken["taken"][0]["token"], token);
    let went = held.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(123), "ended\n"), "{went:?}");
    assert!(went.err.contains("was lost") && went.err.contains("run it again"), "{went:?}");
    assert!(!went.err.contains("released"), "{went:?}");
    assert_eq!(dlock.inspect("a")["free"], true);
}

#[test]
fn a_command_that_ignores_term_is_killed_with_its_children() {
    let dlock = Dlock::on_sqlite();
    let script = "trap '' TERM; (sleep 100; echo survived) & echo held; sleep 100; echo survived";
    let args = ["--name", "a", "--lease", SHORT_LEASE, "--kill-after", "300ms", "--json"];
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
    let held =
        dlock.hold(&["--name", "a", "--lease", SHORT_LEASE, "--kill-after", "300ms"], script);
    dlock.out(&["break", "a", "--yes"]);
    let went = held.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(123), ""), "{went:?}");
}

#[test]
fn a_command_that_ends_after_its_lock_was_lost_is_a_failure() {
    let dlock = Dlock::on_sqlite();
    // Its lease is long, so that no client has noticed yet.
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

/// Prints the signals that it gets, and the lines that it reads. A signal may end a read, so only
/// several failed reads count as the end of its stdin.
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
            // A second copy of the signal would be printed before this line.
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

#[test]
fn a_stopped_command_takes_no_step_after_the_lease() {
    let dlock = Dlock::on_sqlite();
    // It starts no process: a shell whose child is stopped before it has become another program is
    // never shown as stopped.
    let script = "trap 'echo resumed' CONT; echo held; echo $$; read -r line";
    let mut held = dlock.hold(&["--name", "a", "--lease", SHORT_LEASE], script);
    let command: u32 = held.line().parse().unwrap();
    held.signal(Signal::TSTP);
    until("both are stopped", || is_stopped(held.id()) && is_stopped(command));
    until("the lease has ended", || dlock.inspect("a")["free"] == true);
    held.signal(Signal::CONT);
    let went = held.ended();
    assert_eq!((went.code, went.out.as_str()), (Some(123), ""), "{went:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_release_that_has_no_answer() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        let dlock = Dlock::on(server.url());
        // The first signals may arrive before the command has ended: it ignores them.
        let script = "trap '' TERM; echo held; cat; echo done; exit 3";
        let mut held = dlock.hold(&["--name", "a", "--lease", "1h"], script);
        server.pause()?;
        held.close_stdin();
        assert_eq!(held.line(), "done");
        until("dlock exits", || {
            held.signal(Signal::TERM);
            held.has_ended()
        });
        let went = held.ended();
        assert_eq!(went.code, Some(3), "{went:?}");
        assert!(went.err.contains("is free when its lease expires"), "{went:?}");
        server.resume()
    };
    judge("redis", tested.await);
}

/// A script that runs dlock within a run.
fn inner(args: &str) -> String {
    format!("\"$DLOCK\" {args}")
}

fn nested(dlock: &Dlock, outer: &[&str], script: &str) -> Went {
    let mut command: Command =
        dlock.command(&[&["run"], outer, &["--", "sh", "-c", script]].concat());
    went(command.env("DLOCK", env!("CARGO_BIN_EXE_dlock")))
}

#[test]
fn a_run_within_a_run_of_its_name_is_refused() {
    let dlock = Dlock::on_sqlite();
    for (outer, args, code) in [
        (&["-n", "a", "--keep-url"][..], "run -n a -- echo ran", 125),
        (&["-n", "a", "--keep-url", "--shared"], "run -n a -- echo ran", 125),
        (&["-n", "a", "--keep-url"], "run -n a --shared -- echo ran", 125),
        (&["-n", "a", "--keep-url"], "run -n b -- \"$DLOCK\" run -n a -- echo ran", 125),
        (&["-n", "a", "--keep-url"], "run -n b -- echo ran", 0),
        (&["-n", "a", "--keep-url", "--shared"], "run -n a --shared -- echo ran", 125),
        (&["-n", "a", "--keep-url", "--semaphore", "2"], "run -n a --semaphore 2 -- echo ran", 125),
        (
            &["-n", "a", "--keep-url"],
            "run -n a --url sqlite:other.db?dlock.create_schema=true -- echo ran",
            0,
        ),
    ] {
        // The innermost of three runs gets the URL as well.
        let script = inner(args).replace("run -n b --", "run -n b --keep-url --");
        let went = nested(&dlock, outer, &script);
        assert_eq!(went.code, Some(code), "{outer:?} {args}: {went:?}");
        assert_eq!(went.out.contains("ran"), code == 0, "{outer:?} {args}: {went:?}");
        assert_eq!(went.err.contains("already runs under lock \"a\""), code != 0, "{went:?}");
    }
}

/// Two URLs of one store, with other prefixes and token offsets.
#[test]
fn a_run_within_a_run_is_found_by_its_claim() {
    let dlock = Dlock::on_sqlite();
    for options in ["dlock.token_offset=1000", "dlock.prefix=p/"] {
        let (name, url) = match options {
            "dlock.prefix=p/" => ("p/a", &dlock.url),
            _ => ("a", &dlock.url),
        };
        let inner = inner(&format!("run -n a --url '{url}&{options}' -- echo ran"));
        let went = nested(&dlock, &["-n", name, "--keep-url"], &inner);
        assert_eq!(went.code, Some(125), "{options}: {went:?}");
        assert!(went.err.contains("already runs under lock \"a\""), "{options}: {went:?}");
    }
}

#[test]
fn a_process_that_outlives_its_run_may_take_the_lock() {
    let dlock = Dlock::on_sqlite();
    let environment = nested(&dlock, &["-n", "a"], "echo \"$DLOCK_RUN\"");
    let lines = environment.out.trim_end();
    assert!(lines.ends_with(" a") && !lines.contains('\n'), "{environment:?}");
    let held = dlock.hold(&["--name", "a"], HOLD);
    let mut orphan = dlock.command(&["run", "-n", "a", "--wait", "0", "--", "true"]);
    assert_eq!(went(orphan.env("DLOCK_RUN", lines)).code, Some(124), "another run holds it");
    assert_eq!(held.finish().code, Some(0));
    assert_eq!(went(orphan.env("DLOCK_RUN", lines)).code, Some(0));
}

#[test]
fn the_url_is_passed_to_the_command_only_on_request() {
    let dlock = Dlock::on_sqlite();
    let show = "echo \"$DLOCK_URL|$DLOCK_URL_FILE\"";
    let file = dlock.directory.path().join("url");
    std::fs::write(&file, &dlock.url).unwrap();
    let path = std::fs::canonicalize(&file).unwrap().display().to_string();
    assert_eq!(nested(&dlock, &["-n", "a"], show).out, "|\n");
    assert_eq!(nested(&dlock, &["-n", "a", "--keep-url"], show).out, format!("{}|\n", dlock.url));
    // The path of a file is not a secret, but the URL in it is.
    let of_file = nested(&dlock, &["-n", "a", "--keep-url", "--url-file", "url"], show).out;
    let shown = of_file.trim_end().strip_prefix('|').unwrap();
    assert_eq!(std::fs::canonicalize(shown).unwrap().display().to_string(), path);
}

#[test]
fn without_a_url_the_error_names_the_option_to_pass_it() {
    let dlock = Dlock::on_sqlite();
    let went = nested(&dlock, &["-n", "a"], &inner("list"));
    assert_eq!(went.code, Some(125), "{went:?}");
    assert!(went.err.contains("no store is given") && went.err.contains("--keep-url"), "{went:?}");
}

#[test]
fn the_first_process_waits_for_orphans() {
    let dlock = Dlock::on_sqlite();
    // Three processes whose parents end before them.
    let script = "for i in 1 2 3; do (sh -c 'sleep 0.1' &); done; n=0
        while pgrep -f 'sleep 0.1' >/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
        n=0; while grep -q '^State:.Z' /proc/[0-9]*/status && [ $n -lt 100 ]; do
        sleep 0.1; n=$((n+1)); done; cat /proc/[0-9]*/status | grep -c '^State:.Z'";
    let mut command = with_signals("unshare");
    command
        .args(["--fork", "--pid", "--mount-proc", env!("CARGO_BIN_EXE_dlock")])
        .args(["run", "-n", "a", "--", "sh", "-c", script])
        .env("DLOCK_URL", &dlock.url)
        .current_dir(dlock.directory.path());
    let went = went(&mut command);
    if went.err.contains("unshare") {
        return dlock_testlab::judge("unshare", Err(dlock_testlab::Stop::missing(went.err)));
    }
    assert_eq!(went.out, "0\n", "{went:?}");
}
