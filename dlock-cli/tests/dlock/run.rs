//! `dlock run`: exit codes, environment, waiting, and that it excludes.

use std::{
    io::Write,
    process::{Child, Stdio},
};

use crate::support::{Dlock, HOLD, Running, bare, went};

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
    // Where a busy lock is success, a word about it is only for those who ask.
    for (args, silent) in [(&[][..], true), (&["--verbose"], false)] {
        let all = [&["run", "-n", "a", "--wait", "0", "--busy-code", "0"], args, &["--", "echo"]];
        let went = dlock.went(&all.concat());
        assert_eq!((went.code, went.out.as_str()), (Some(0), ""), "{went:?}");
        assert_eq!(went.err.is_empty(), silent, "{went:?}");
    }
    // Nobody has stayed in the queue, and another name is another lock.
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
