//! Exit codes and JSON are API: golden files have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use dlock_tests::{golden, root};
use serde_json::Value;

use crate::support::{Dlock, HOLD, Running, Went, bare, until, went};

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

/// The types that were seen at each place of the JSON of each command.
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
    let held = dlock.hold(&["--name", "a", "--lease", "6s", "--json"], HOLD);
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
    // A store that is not there, and one that can't be used.
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
