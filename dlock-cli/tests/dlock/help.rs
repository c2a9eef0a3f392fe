//! Help, pages, scripts, and what must not be said.

use crate::support::{Dlock, bare, went};

const SUBCOMMANDS: [&str; 10] = [
    "run",
    "inspect",
    "list",
    "watch",
    "break",
    "raise-tokens",
    "doctor",
    "guarantees",
    "completions",
    "man",
];

#[test]
fn each_subcommand_has_help_with_an_example_and_a_page() {
    for name in SUBCOMMANDS {
        let help = went(&mut bare(&[name, "--help"]));
        assert_eq!(help.code, Some(0), "{name}");
        assert!(help.out.contains("Example") && help.out.contains("Usage: dlock "), "{name}");
        let page = went(&mut bare(&["man", name]));
        assert!(page.out.contains(".SH NAME\n") && page.out.contains(".SH OPTIONS"), "{name}");
    }
    let page = went(&mut bare(&["man"]));
    assert!(page.out.contains("Exit codes:") && page.out.contains("dlock\\-run(1)"), "{page:?}");
    assert_eq!(went(&mut bare(&["man", "nothing"])).code, Some(125));
}

#[test]
fn all_pages_are_written_into_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert_eq!(went(&mut bare(&["man", "--dir", path])).code, Some(0));
    for name in SUBCOMMANDS {
        assert!(directory.path().join(format!("dlock-{name}.1")).exists(), "{name}");
    }
    assert!(directory.path().join("dlock.1").exists());
    let nowhere = directory.path().join("none").display().to_string();
    assert_eq!(went(&mut bare(&["man", "--dir", &nowhere])).code, Some(125));
}

#[test]
fn completions_come_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = went(&mut bare(&["completions", shell]));
        assert_eq!(script.code, Some(0));
        assert!(script.out.contains("doctor") && script.out.contains("dlock"), "{shell}");
    }
    assert_eq!(went(&mut bare(&["completions", "tea"])).code, Some(125));
}

#[test]
fn a_closed_pipe_ends_the_program_as_sigpipe_does() {
    let mut child =
        bare(&["completions", "zsh"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn a_missing_store_is_refused_with_a_remedy() {
    for name in ["list", "doctor", "guarantees", "watch"] {
        let told = went(&mut bare(&[name]));
        assert_eq!(told.code, Some(125), "{told:?}");
        assert!(told.err.contains("--url URL or set DLOCK_URL"), "{told:?}");
    }
}

#[test]
fn wrong_arguments_are_refused_with_one_exit_code() {
    for args in [
        &["run", "--", "true"][..],
        &["run", "--name", "a"],
        &["run", "--name", "", "--", "true"],
        &["run", "--name", "a", "--wait", "soon", "--", "true"],
        &["run", "--name", "a", "--lease", "1ms", "--", "true"],
        &["run", "--name", "a", "--semaphore", "0", "--", "true"],
        &["run", "--nmae", "a", "--", "true"],
        &["watch", "--interval", "0s"],
        &["list", "--limit", "0"],
        &["inspect"],
        &["raise-tokens", "a"],
        &["raise-tokens", "a", "0"],
        &["raise-tokens", "", "7"],
        &["raise-tokens", "a", "9223372036854775807"],
        &["nothing"],
        &[],
    ] {
        let told = Dlock::on_sqlite().went(args);
        assert_eq!(told.code, Some(125), "{args:?}: {told:?}");
        assert!(has_remedy(&told.err), "{args:?}: {told:?}");
    }
}

/// Whether a message has a second part, which says what to do, or names the help.
fn has_remedy(err: &str) -> bool {
    let text = err.strip_prefix("dlock: ").unwrap_or(err);
    text.contains(": ") || text.contains("; ") || err.contains("--help")
}

#[test]
fn no_output_has_a_password() {
    for url in [
        "redis://u:hunter2@127.0.0.1:1",
        "postgres://u:hunter2@127.0.0.1:1/d?dlock.response_timeout=100ms",
        "mysql://u:hunter2@127.0.0.1:1/d?dlock.response_timeout=100ms",
        "zk://u:hunter2@127.0.0.1:1",
        "etcd://u:hunter2@127.0.0.1:1",
        "redis://u:hunter2@127.0.0.1:1?dlock.nope=1",
        "redis:u:hunter2@host",
        "redis://u:hunter2?x@host",
        "redis://u:p@hunter2/w?rd#x@host",
        "etcd://u:1234/hunter2@127.0.0.1:1",
        "etcd://u:1234/hunter2%40127.0.0.1:1",
        "zk://u:1234/hunter2@127.0.0.1:1",
        "sqlite://u:hunter2@host/d",
    ] {
        let dlock = Dlock::on(url.into());
        for args in [
            &["run", "--name", "a", "--wait", "0", "--lease", "1s", "-v", "--", "echo", "ran"][..],
            &["inspect", "a", "--json"],
            &["list"],
            &["break", "a", "--yes"],
            &["raise-tokens", "a", "7"],
        ] {
            let told = dlock.went(&[&["--connect-timeout", "200ms"], args].concat());
            assert!(matches!(told.code, Some(122 | 125)), "{url} {args:?}: {told:?}");
            assert!(told.out.is_empty(), "{url} {args:?}: {told:?}");
            assert!(!told.err.contains("hunter2") && has_remedy(&told.err), "{url}: {told:?}");
            if args.contains(&"--json") {
                let error: serde_json::Value = serde_json::from_str(&told.err).unwrap();
                assert_eq!(error["code"].as_i64(), told.code.map(i64::from));
            }
        }
        let (option, short) = (format!("--limit={url}"), format!("-n{url}"));
        for args in [
            &["inspect", "a", url][..],
            &["list", "--json", "--limit", url],
            &["list", &option],
            &["list", &short],
            &["--ulr", url],
        ] {
            let told = went(&mut bare(args));
            assert_eq!(told.code, Some(125), "{told:?}");
            assert!(!told.err.contains("hunter2"), "{told:?}");
        }
        let help = went(dlock.command(&["run", "--help"]).env("COLUMNS", "200"));
        assert!(help.out.contains("DLOCK_URL") && !help.out.contains("hunter2"), "{help:?}");
    }
}
