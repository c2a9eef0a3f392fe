//! `dlock-bench compare` as it is started, briefly and over the stores that need no server.

use std::process::{Command, Output};

use serde_json::Value;

fn compare(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock-bench"));
    command.arg("compare").args(args).output().expect("it starts")
}

#[test]
fn it_measures_all_forms_and_writes_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let scenarios = ["quiet", "many-64", "local", "crowd-8", "hand-over", "rw", "multi"];
    let mut args = vec!["--store", "memory", "--store", "sqlite", "--peers", "none", "--targets"];
    args.extend(["--quick", "--seconds", "0.05", "--rounds", "1", "--report", path]);
    args.extend(scenarios.iter().flat_map(|scenario| ["--scenario", scenario]));
    let done = compare(&args);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));

    let results = std::fs::read_to_string(directory.path().join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let parts = results["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2 * scenarios.len());
    for part in parts {
        let names: Vec<_> = part["entries"].as_array().unwrap().iter().collect();
        let names: Vec<_> = names.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        let reason = part["left_out"][0]["reason"].as_str();
        match reason {
            // It makes no sense over this store.
            Some("it reaches one process alone") => assert_eq!(names.len(), 0, "{part}"),
            Some(reason) => panic!("{reason}: {said}"),
            None => assert!(names.contains(&"dlock") && names.len() > 1, "{part}"),
        }
    }
    let missed = results["targets"].as_array().unwrap().iter().any(|target| target["met"] == false);
    assert_eq!(done.status.code(), Some(i32::from(missed)), "{said}");

    let text = std::fs::read_to_string(directory.path().join("results.md")).unwrap();
    for scenario in scenarios {
        assert!(text.contains(&format!("({scenario}.svg)")), "{text}");
        assert!(directory.path().join(format!("{scenario}.svg")).exists(), "{scenario}");
    }
}

#[test]
fn what_is_not_known_is_refused() {
    let done = compare(&["--scenario", "nonsense"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("crowd-8"));
    let listed = compare(&["--list"]);
    assert!(listed.status.success());
    assert!(String::from_utf8_lossy(&listed.stdout).contains("rslock"));
}
