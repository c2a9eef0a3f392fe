//! Short runs of `dlock-bench compare`, over the stores that need no server.

use std::process::{Command, Output};

use dlock_testlab::{
    client::run_on_one_thread,
    redis::{Options as RedisOptions, RedisServer},
};
use serde_json::Value;

fn compare(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock-bench"));
    command.arg("compare").args(args).output().expect("it starts")
}

#[test]
fn it_measures_all_forms_and_writes_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let scenarios = ["uncontended", "many-64", "local", "crowd-8", "hand-off", "rw", "multi"];
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
            // The scenario makes no sense for this store.
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
fn leftovers_of_locks_are_counted_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut args = vec!["--store", "memory", "--store", "sqlite", "--peers", "none"];
    args.extend(["--scenario", "long-life", "--scenario", "one-time-names"]);
    args.extend(["--quick", "--seconds", "0.05", "--rounds", "1", "--report", path]);
    let done = compare(&args);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && done.stderr.is_empty(), "{said}");

    let results = std::fs::read_to_string(directory.path().join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let figure = |scenario: &str, figure: &str| {
        let mut parts = results["parts"].as_array().unwrap().iter();
        let part = parts.find(|part| part["scenario"] == scenario && part["store"] == "sqlite");
        let mut entries = part.unwrap()["entries"].as_array().unwrap().iter();
        let dlock = entries.find(|entry| entry["name"] == "dlock").expect(&said);
        dlock["figures"][figure]["median"].as_f64().expect(&said)
    };
    for scenario in ["long-life", "one-time-names"] {
        assert_eq!(figure(scenario, "left"), 0.0, "{said}");
        assert!(figure(scenario, "gone") > 0.0, "{said}");
        assert!(directory.path().join(format!("{scenario}.svg")).exists(), "{scenario}");
    }
    assert_eq!(figure("long-life", "stale"), 0.0, "{said}");
    assert!(figure("long-life", "cycles") > 0.0 && figure("long-life", "row") > 0.0, "{said}");
    assert!(figure("long-life", "ageing") > 0.0, "{said}");
    assert_eq!(figure("one-time-names", "entries"), 1.0, "{said}");
    // The result exists. In such a short round, a busy machine may complete no cycle.
    figure("one-time-names", "rate");
    assert!(figure("one-time-names", "bytes") > 0.0, "{said}");
}

#[test]
fn a_network_costs_at_least_its_round_trips() {
    run_on_one_thread("redis", async {
        // Without a Redis server to start, the test ends here.
        drop(RedisServer::start(&RedisOptions::new()).await?);
        let directory = tempfile::tempdir()?;
        let path = directory.path().to_str().unwrap();
        let mut args = vec!["--store", "memory", "--store", "redis", "--peers", "none", "--quick"];
        args.extend(["--rounds", "1", "--scenario", "network-1ms", "--report", path]);
        let done = compare(&args);
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && done.stderr.is_empty(), "{said}");

        let results = std::fs::read_to_string(directory.path().join("results.json"))?;
        let results: Value = serde_json::from_str(&results).unwrap();
        let trips = |scenario: &str, name: &str| {
            let mut parts = results["parts"].as_array().unwrap().iter();
            let part = parts.find(|part| part["scenario"] == scenario && part["store"] == "redis");
            let mut entries = part.unwrap()["entries"].as_array().unwrap().iter();
            let entry = entries.find(|entry| entry["name"] == name).expect(&said);
            entry["figures"]["trips"]["median"].as_f64().expect(&said)
        };
        for (scenario, baseline, least) in [
            ("network-1ms-uncontended", "bare driver", 2.0),
            ("network-1ms-hand-off", "one push", 1.0),
            ("network-1ms-multi", "bare driver", 2.0),
        ] {
            assert!(trips(scenario, baseline) >= least, "{scenario}: {said}");
            assert!(trips(scenario, "dlock") >= least, "{scenario}: {said}");
        }
        let memory = &results["parts"][0]["left_out"][0]["reason"];
        assert_eq!(memory, "it has no network");
        Ok(())
    });
}

#[test]
fn another_process_takes_over_from_killed_and_frozen_holders() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut args = vec!["--store", "memory", "--store", "sqlite", "--peers", "none", "--quick"];
    args.extend(["--scenario", "takeover-2", "--report", path]);
    let done = compare(&args);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && done.stderr.is_empty(), "{said}");

    let results = std::fs::read_to_string(directory.path().join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    let memory = &results["parts"][0]["left_out"][0]["reason"];
    assert_eq!(memory, "its locks end with their process");
    let figures = &results["parts"][1]["entries"][0]["figures"];
    let figure = |name: &str| figures[name]["median"].as_f64();
    let needless = figure("needless").expect(&said);
    for fault in ["killed_p50", "frozen_p50"] {
        // On a busy machine, all holders may have lost their locks before.
        assert!(figure(fault).map_or(needless > 0.0, |took| took > 0.0), "{said}");
    }
    // A file has no network.
    assert_eq!(figure("cut_p50"), None, "{said}");
}

#[test]
fn ratios_are_recorded_and_compared_later() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ratios.json");
    let path = file.to_str().unwrap();
    let run = |option| {
        let short = ["--quick", "--seconds", "0.02", "--rounds", "1", "--peers", "none"];
        let what = ["--store", "memory", "--scenario", "uncontended", option, path];
        let done = compare(&[&short[..], &what].concat());
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let edit = |change: &dyn Fn(&mut Value)| {
        let mut all: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        change(&mut all[0]);
        std::fs::write(&file, all.to_string()).unwrap();
    };
    let bounds = |record: &mut Value, ratio: f64| {
        let ratios = record["ratios"].as_array_mut().unwrap();
        assert_eq!(ratios.len(), 1);
        (ratios[0]["median"], ratios[0]["worst"]) = (ratio.into(), ratio.into());
    };
    let (code, said) = run("--check");
    assert_eq!(code, Some(3));
    assert!(said.contains("--record FILE"), "{said}");

    assert_eq!(run("--record").0, Some(0));
    edit(&|record| bounds(record, 1e9));
    assert_eq!(run("--check").0, Some(0));
    edit(&|record| bounds(record, 1e-9));
    let (code, said) = run("--check");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("FAILED: memory uncontended, dlock: the ratio"), "{said}");
    edit(&|record| record["setting"]["processors"] = "0".into());
    assert_eq!(run("--check").0, Some(3));
}

#[test]
fn the_word_may_be_left_out() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock-bench"));
    let listed = command.arg("--list").output().expect("it starts");
    assert_eq!(listed.stdout, compare(&["--list"]).stdout);
}

#[test]
fn an_unknown_scenario_is_refused() {
    let done = compare(&["--scenario", "nonsense"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("crowd-8"));
    let listed = compare(&["--list"]);
    assert!(listed.status.success());
    let listed = String::from_utf8_lossy(&listed.stdout);
    for name in ["rslock", "  long-life ", "  one-time-names "] {
        assert!(listed.contains(name), "{listed}");
    }
}
