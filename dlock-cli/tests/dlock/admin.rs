//! `inspect`, `list`, `watch`, `break` and `raise-tokens`.

use serde_json::Value;

use crate::support::{Dlock, HOLD, Running, until};

#[test]
fn inspect_shows_holders_and_waiters() {
    let dlock = Dlock::on_sqlite();
    assert_eq!(dlock.out(&["inspect", "a"]), "a: free\n");
    let held = dlock.hold(&["--name", "a"], HOLD);
    let waiting = Running::start(dlock.command(&["run", "-n", "a", "--shared", "--", "true"]));
    until("it waits", || dlock.inspect("a")["waiters"].as_array().unwrap().len() == 1);

    let seen = dlock.inspect("a");
    assert_eq!((&seen["name"], &seen["free"]), (&"a".into(), &false.into()));
    let (holder, waiter) = (&seen["holders"][0], &seen["waiters"][0]);
    assert_eq!((&holder["mode"], &waiter["mode"]), (&"exclusive".into(), &"shared".into()));
    assert_eq!(holder["token"], seen["last_token"]);
    assert!(waiter["token"].is_null());
    assert!((1..=30_000).contains(&holder["remaining_ms"].as_u64().unwrap()));
    let host = rustix::system::uname();
    let note =
        |pid: u32, program| format!("{} pid {pid} {program}", host.nodename().to_str().unwrap());
    // `env` replaces itself with the command, in the same process.
    assert_eq!(holder["note"], note(held.id(), "sh"));
    assert_eq!(waiter["note"], note(waiting.id(), "true"));

    let text = dlock.out(&["inspect", "a"]);
    assert!(text.starts_with("a: held by 1 (exclusive, token "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("waits  shared ")), "{text}");
    assert!(text.contains(holder["claim"].as_str().unwrap()), "{text}");
    assert_eq!((held.finish().code, waiting.finish().code), (Some(0), Some(0)));
}

#[test]
fn characters_that_turn_text_around_are_escaped_but_in_json() {
    let dlock = Dlock::on_sqlite();
    let (name, note) = ("a\u{202e}b", "n\u{2066}");
    let held = dlock.hold(&["--name", name, "--note", note], HOLD);
    for args in [&["list"][..], &["inspect", name], &["watch", "--count", "1"]] {
        let text = dlock.out(args);
        assert!(text.starts_with("a\\u{202e}b: held by 1 ("), "{text}");
        assert!(text.contains("n\\u{2066}") && !text.contains('\u{2066}'), "{text}");
    }
    let busy = dlock.went(&["run", "-n", name, "--wait", "0", "--", "true"]);
    assert!(busy.err.contains("a\\u{202e}b") && !busy.err.contains('\u{2066}'), "{busy:?}");
    let seen = dlock.inspect(name);
    assert_eq!((&seen["name"], &seen["holders"][0]["note"]), (&name.into(), &note.into()));
    assert_eq!(held.finish().code, Some(0));
}

#[test]
fn a_note_has_the_requested_text_and_no_arguments() {
    let dlock = Dlock::on_sqlite();
    let note = "db-1: migrate é (urgent)";
    let held = dlock.hold(&["--name", "a", "--note", note], HOLD);
    assert_eq!(dlock.inspect("a")["holders"][0]["note"], note);
    let ends = format!("{note})\n");
    assert!(dlock.out(&["list"]).ends_with(&ends));
    assert!(dlock.out(&["watch", "--name", "a", "--count", "1"]).ends_with(&ends));
    assert!(dlock.out(&["inspect", "a"]).contains(&format!("  {note}\n")));
    assert_eq!(held.finish().code, Some(0));

    let secret = "hunter2";
    let args =
        ["run", "-n", "a", "--", "/bin/sh", "-c", "echo held; cat; exit \"$1\"", secret, "0"];
    let mut held = Running::start(dlock.command(&args));
    assert_eq!(held.line(), "held");
    let seen = dlock.out(&["inspect", "a", "--json"]);
    assert!(seen.contains(" sh\"") && !seen.contains(secret) && !seen.contains("/bin"), "{seen}");
    assert_eq!(held.finish().code, Some(0));

    for (note, says) in
        [("", "empty"), ("a\nb", "control character"), (&"x".repeat(129), "129 bytes")]
    {
        let went = dlock.went(&["run", "-n", "a", "--note", note, "--", "true"]);
        assert_eq!(went.code, Some(125), "{went:?}");
        assert!(went.err.contains(says), "{went:?}");
    }
}

#[test]
fn list_prints_a_line_for_each_held_lock_with_the_prefix() {
    let dlock = Dlock::on_sqlite();
    assert_eq!(dlock.out(&["list"]), "");
    let held = ["jobs/1", "jobs/2", "other"].map(|name| dlock.hold(&["--name", name], HOLD));
    let names = |args: &[&str]| -> Vec<String> {
        let out = dlock.out(&[&["list"], args].concat());
        out.lines().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["jobs/1", "jobs/2", "other"]);
    assert_eq!(names(&["jobs/"]), ["jobs/1", "jobs/2"]);
    let went = dlock.went(&["list", "--limit", "2", "--json"]);
    assert!(went.err.contains("--limit"), "{went:?}");
    let views: Vec<Value> =
        went.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(views.len(), 2);
    assert_eq!(views[0]["holders"].as_array().unwrap().len(), 1);
    for one in held {
        assert_eq!(one.finish().code, Some(0));
    }
    assert_eq!(dlock.out(&["list"]), "");
}

#[test]
fn watch_reports_each_change_of_one_lock_once() {
    watched(&["--name", "a"]);
}

#[test]
fn watch_reports_each_change_of_all_locks_once() {
    watched(&["a"]);
}

fn watched(which: &[&str]) {
    let dlock = Dlock::on_sqlite();
    let held = dlock.hold(&["--name", "a"], HOLD);
    let args = [&["watch", "--interval", "50ms", "--json"], which].concat();
    let mut watch = Running::start(dlock.command(&args));
    let first: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!((&first["name"], &first["free"]), (&"a".into(), &false.into()));
    assert_eq!(held.finish().code, Some(0));
    let second: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!((&second["name"], &second["free"]), (&"a".into(), &true.into()));
    let again = dlock.hold(&["--name", "a"], HOLD);
    let third: Value = serde_json::from_str(&watch.line()).unwrap();
    assert!(third["holders"][0]["token"].as_u64() > first["holders"][0]["token"].as_u64());
    watch.signal(rustix::process::Signal::TERM);
    assert_eq!(watch.ended().code, None);
    assert_eq!(again.finish().code, Some(0));
}

#[test]
fn watch_without_a_terminal_prints_plain_lines_and_ends() {
    let dlock = Dlock::on_sqlite();
    let out = dlock.out(&["watch", "--name", "a", "--interval", "10ms", "--count", "3"]);
    assert_eq!(out, "a: free\n");
}

#[test]
fn break_needs_a_confirmation_and_revokes_the_lock() {
    let dlock = Dlock::on_sqlite();
    let nobody = dlock.json(&["break", "a", "--yes", "--json"]);
    assert_eq!(nobody, serde_json::json!({ "name": "a", "taken": [] }));

    let held = dlock.hold(&["--name", "a", "--lease", "10m"], HOLD);
    let went = dlock.went(&["break", "a"]);
    assert_eq!(went.code, Some(125), "{went:?}");
    assert!(went.err.contains("--yes"), "{went:?}");
    assert_eq!(dlock.inspect("a")["free"], false);

    let text = dlock.out(&["break", "a", "--yes"]);
    assert!(text.starts_with("a: revoked from claim "), "{text}");
    assert_eq!(dlock.inspect("a")["free"], true);
    dlock.out(&["run", "--name", "a", "--wait", "0", "--", "true"]);
    assert_eq!(held.finish().code, Some(123));
}

#[test]
fn raise_tokens_has_every_later_holder_above_the_token() {
    let dlock = Dlock::on_sqlite();
    let token = || -> u64 {
        let out = dlock.out(&["run", "-n", "a", "--", "sh", "-c", "echo $DLOCK_TOKEN"]);
        out.trim().parse().unwrap()
    };
    let seen = token() + (1 << 50);
    let text = dlock.out(&["raise-tokens", "a", &seen.to_string()]);
    assert_eq!(text, format!("a: tokens are above {seen} from now on\n"));
    assert!(token() > seen);

    // A holder keeps its own token.
    let held = dlock.hold(&["--name", "a"], HOLD);
    let before = dlock.inspect("a")["holders"][0]["token"].clone();
    let seen = seen + (1 << 50);
    let json = dlock.json(&["raise-tokens", "a", &seen.to_string(), "--json"]);
    assert_eq!(json, serde_json::json!({ "name": "a", "above": seen }));
    assert_eq!(dlock.inspect("a")["holders"][0]["token"], before);
    assert_eq!(held.finish().code, Some(0));
    assert!(token() > seen);
}
