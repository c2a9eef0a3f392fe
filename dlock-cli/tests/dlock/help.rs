//! Help, man pages, completions, and output without passwords. Exit codes and JSON are API: golden
//! files have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use dlock_tests::{golden, root};
use serde_json::Value;

use crate::support::{Dlock, HOLD, Running, Went, bare, until, went};

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

/// Returns whether a message has a second part with a remedy, or names the help.
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

#[test]
fn exit_codes_are_those_of_the_golden_file() {
    let help = went(&mut bare(&["--help"])).out;
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let (codes, _) = codes.split_once("\n\n").unwrap();
    let source = fs::read_to_string(root().join("dlock-cli/src/failure.rs")).unwrap();
    let names = source.lines().filter_map(|line| {
        let (name, code) = line.trim().strip_prefix("pub(crate) const ")?.split_once(": u8 = ")?;
        Some(format!("{name} {}\n", code.trim_end_matches(';')))
    });
    let names: String = names.collect();
    assert!(names.contains("BUSY 124\n"), "{names}");
    golden("exit-codes.txt", &format!("{names}\n{codes}\n"));
}

/// The types that occurred at each path of the JSON of each command.
#[derive(Default)]
struct Shapes(BTreeMap<String, BTreeSet<&'static str>>);

impl Shapes {
    fn see(&mut self, place: &str, value: &Value) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.0.entry(place.to_owned()).or_default().insert(kind);
        for item in value.as_array().into_iter().flatten() {
            self.see(&format!("{place}[]"), item);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            self.see(&format!("{place}.{key}"), value);
        }
    }

    /// Each line of an output is one value.
    fn read_lines(&mut self, place: &str, lines: &str) {
        assert!(!lines.is_empty(), "{place} prints nothing");
        for line in lines.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            // Events of one command differ in their fields.
            let event = value["event"].as_str().map(|event| format!("{place} {event}"));
            self.see(&event.unwrap_or_else(|| place.to_owned()), &value);
        }
    }

    fn text(&self) -> String {
        let line = |(place, kinds): (&String, &BTreeSet<&str>)| {
            format!("{place}: {}\n", kinds.iter().copied().collect::<Vec<_>>().join(" | "))
        };
        self.0.iter().map(line).collect()
    }
}

/// Of commands that fail.
fn fails(went: Went) -> String {
    assert!(went.code != Some(0) && went.out.is_empty(), "{went:?}");
    went.err
}

#[test]
fn json_has_the_shape_of_the_golden_file() {
    let dlock = Dlock::on_sqlite();
    let mut shapes = Shapes::default();
    let looks = |shapes: &mut Shapes, name: &str| {
        shapes.read_lines("inspect", &dlock.out(&["inspect", name, "--json"]));
        let watch = ["watch", "--name", name, "--count", "1", "--json"];
        shapes.read_lines("watch", &dlock.out(&watch));
    };
    looks(&mut shapes, "never");

    // A holder and a waiter, in every mode.
    let held = dlock.hold(&["--name", "a", "--lease", "10s", "--json"], HOLD);
    let all = ["run", "-n", "a", "--verbose", "--json"];
    let mut waiting = Running::start(dlock.command(&[&all[..], &["--", "true"]].concat()));
    let shared = Running::start(dlock.command(&["run", "-n", "a", "--shared", "--", "true"]));
    let permit = dlock.hold(&["--name", "b", "--semaphore", "2"], HOLD);
    until("both wait", || dlock.inspect("a")["waiters"].as_array().unwrap().len() == 2);
    for name in ["a", "b"] {
        looks(&mut shapes, name);
    }
    shapes.read_lines("list", &dlock.out(&["list", "--json"]));
    let busy = ["run", "-n", "a", "--wait", "0", "--json", "--", "true"];
    shapes.read_lines("error", &fails(dlock.went(&busy)));
    shapes.read_lines("run", &waiting.complaint());

    shapes.read_lines("break", &dlock.out(&["break", "a", "--yes", "--json"]));
    shapes.read_lines("break", &dlock.out(&["break", "never", "--yes", "--json"]));
    shapes.read_lines("run", &held.ended().err);
    shapes.read_lines("run", &waiting.finish().err);
    assert_eq!((shared.finish().code, permit.finish().code), (Some(0), Some(0)));

    shapes.read_lines("raise-tokens", &dlock.out(&["raise-tokens", "a", "7", "--json"]));
    shapes.read_lines("guarantees", &dlock.out(&["guarantees", "--json"]));
    shapes.read_lines("doctor", &dlock.out(&["doctor", "--json"]));
    // A store that does not exist, and one that can't be used.
    let unreachable = dlock.went(&[
        "doctor",
        "--json",
        "--connect-timeout",
        "200ms",
        "--url",
        "redis://127.0.0.1:1",
    ]);
    shapes.read_lines("doctor", &unreachable.out);
    let misuse = ["inspect", "a", "--json", "--url", "nowhere"];
    shapes.read_lines("error", &fails(dlock.went(&misuse)));
    golden("command-json.txt", &shapes.text());
}
