//! A run within a run, and what a command finds in its environment.

use std::process::Command;

use crate::support::{Dlock, HOLD, went, with_signals};

/// A script that runs dlock within a run.
fn inner(args: &str) -> String {
    format!("\"$DLOCK\" {args}")
}

fn nested(dlock: &Dlock, outer: &[&str], script: &str) -> crate::support::Went {
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
        (&["-n", "a", "--keep-url", "--shared"], "run -n a --shared -- echo ran", 0),
        (&["-n", "a", "--keep-url", "--semaphore", "2"], "run -n a --semaphore 2 -- echo ran", 0),
        (
            &["-n", "a", "--keep-url"],
            "run -n a --url sqlite:other.db?dlock.create_schema=true -- echo ran",
            0,
        ),
    ] {
        // The innermost of three finds the URL as well.
        let script = inner(args).replace("run -n b --", "run -n b --keep-url --");
        let went = nested(&dlock, outer, &script);
        assert_eq!(went.code, Some(code), "{outer:?} {args}: {went:?}");
        assert_eq!(went.out.contains("ran"), code == 0, "{outer:?} {args}: {went:?}");
        assert_eq!(went.err.contains("already runs under lock \"a\""), code != 0, "{went:?}");
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
    // The path of a file is no secret; the URL in it is.
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
