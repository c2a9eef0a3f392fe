//! `doctor` and `guarantees`.

use serde_json::Value;

use crate::support::{Dlock, Went};

/// Returns the level of the finding about this subject.
fn level(report: &Value, about: &str) -> String {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["about"] == about);
    let found = found.unwrap_or_else(|| panic!("nothing about {about} in {report}"));
    found["level"].as_str().unwrap().to_owned()
}

fn report(went: &Went) -> Value {
    serde_json::from_str(&went.out).unwrap_or_else(|error| panic!("{error}: {went:?}"))
}

#[test]
fn a_store_that_is_well_is_said_to_be() {
    let dlock = Dlock::on_sqlite();
    let went = dlock.went(&["doctor", "--json"]);
    assert_eq!(went.code, Some(0), "{went:?}");
    let report = report(&went);
    for about in ["connection", "tokens", "lock"] {
        assert_eq!(level(&report, about), "fine", "{report}");
    }
    assert!(report["round_trip_ms"].as_f64() > Some(0.0));
    assert_eq!(report["guarantees"]["scope"]["value"], "machine");
    let text = dlock.out(&["doctor"]);
    assert!(text.contains("\nreach ") && text.contains("fine "), "{text}");
}

#[test]
fn a_store_that_can_not_be_used_is_wrong_with_a_remedy() {
    let dlock = Dlock::on_sqlite();
    let file = dlock.directory.path().join("locks.db");
    for url in [
        format!("sqlite:{}", file.display()),
        "redis://u:hunter2@127.0.0.1:1".into(),
        "zk://127.0.0.1:1".into(),
        "etcd://u:hunter2@127.0.0.1:1".into(),
    ] {
        let went = dlock.went(&["doctor", "--connect-timeout", "1s", "--json", "--url", &url]);
        assert_eq!(went.code, Some(1), "{went:?}");
        assert!(!format!("{went:?}").contains("hunter2"), "{went:?}");
        let report = report(&went);
        assert_eq!(level(&report, "connection"), "wrong", "{report}");
        assert!(report["findings"][0]["remedy"].as_str().unwrap().len() > 10, "{report}");
        assert!(report["guarantees"].is_null());
        let text = dlock.went(&["doctor", "--connect-timeout", "1s", "--url", &url]);
        assert!(text.out.contains("wrong ") && text.out.contains(" -> "), "{text:?}");
    }
}

#[test]
fn strict_counts_warnings() {
    let dlock = Dlock::on_sqlite();
    // Every round trip is too long for such a lease.
    let url = format!("{}&dlock.lease=100ms", dlock.url);
    for (args, worst) in
        [(&["doctor", "--json"][..], "wrong"), (&["doctor", "--json", "--strict"], "warning")]
    {
        let went = dlock.went(&[args, &["--url", &url]].concat());
        let report = report(&went);
        let levels: Vec<&str> = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["level"].as_str().unwrap())
            .collect();
        let is_bad = levels.contains(&"wrong") || levels.contains(&worst);
        assert_eq!(went.code, Some(i32::from(is_bad)), "{report}");
    }
}

#[test]
fn a_url_that_can_not_be_is_the_callers_mistake() {
    let dlock = Dlock::on_sqlite();
    for url in ["nowhere", "consul://x", "redis://localhost?dlock.nope=1"] {
        let went = dlock.went(&["doctor", "--url", url]);
        assert_eq!((went.code, went.out.as_str()), (Some(125), ""), "{went:?}");
        assert!(went.err.starts_with("dlock: "), "{went:?}");
    }
}

#[test]
fn guarantees_are_those_of_the_store_as_connected() {
    let dlock = Dlock::on_sqlite();
    let text = dlock.out(&["guarantees"]);
    assert!(text.contains("reach                         one machine\n"), "{text}");
    let memory = dlock.json(&["guarantees", "--json", "--url", "memory:"]);
    assert_eq!(memory["guarantees"]["scope"]["value"], "process");
    assert_eq!(memory["guarantees"]["fencing"]["text"], "while the store's process lives");
}

#[test]
fn doctor_reports_smaller_tokens_with_the_offset_to_set() {
    let dlock = Dlock::on_sqlite();
    let seen = "4000000000000000000";
    let args = ["doctor", "--json", "--token", seen];
    let went = dlock.went(&args);
    assert_eq!(went.code, Some(1), "{went:?}");
    let before = report(&went);
    assert_eq!(level(&before, "seen token"), "wrong", "{before}");
    let option = format!("dlock.token_offset={seen}");
    assert!(went.out.contains(&option), "{before}");

    let lifted = Dlock::on(format!("{}&{option}", dlock.url));
    let after = lifted.json(&args);
    assert_eq!(level(&after, "seen token"), "fine", "{after}");
    assert_eq!(level(&after, "token offset"), "fine", "{after}");
    let mut held = lifted.hold(&["--name", "a"], "echo held; echo $DLOCK_TOKEN; cat");
    let token = |seen: &Value| seen["holders"][0]["token"].as_u64().unwrap();
    let (own, ours) = (token(&dlock.inspect("a")), token(&lifted.inspect("a")));
    assert_eq!(own + seen.parse::<u64>().unwrap(), ours);
    assert_eq!(held.line(), ours.to_string());
    let text = lifted.out(&["inspect", "a"]);
    assert!(text.contains(&format!("token {ours}")), "{text}");
    let broken = lifted.out(&["break", "a", "--yes"]);
    assert!(broken.contains(&format!("with token {ours}")), "{broken}");
    drop(held);
    // If tokens are larger already, no offset is necessary.
    assert_eq!(level(&dlock.json(&["doctor", "--json", "--token", "7"]), "seen token"), "fine");
}

#[test]
fn an_invalid_token_or_offset_is_refused_with_its_range() {
    let dlock = Dlock::on_sqlite();
    for wrong in ["0", "-1", "x", "9223372036854775808"] {
        let went = dlock.went(&["doctor", "--token", wrong]);
        assert_eq!(went.code, Some(125), "{went:?}");
        assert!(went.err.contains("write a whole number from 1 to"), "{went:?}");
    }
    for wrong in ["-1", "x", "4611686018427387905"] {
        let url = format!("{}&dlock.token_offset={wrong}", dlock.url);
        let went = dlock.went(&["doctor", "--connect-timeout", "1s", "--url", &url]);
        assert_eq!((went.code, went.out.as_str()), (Some(125), ""), "{went:?}");
        assert!(went.err.contains("write a whole number from 0 to"), "{went:?}");
    }
}
