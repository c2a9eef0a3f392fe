//! Where events come from.

use dlock_tests::{root, rust_files};

#[test]
fn every_event_has_the_target_dlock() {
    let all = ["core", "etcd", "redis", "sql", "zk"]
        .iter()
        .flat_map(|name| rust_files(&root().join(format!("dlock-{name}/src"))));
    let mut events = 0;
    for (_, text) in all {
        for level in ["trace", "debug", "info", "warn", "error"] {
            for event in text.split(&format!("tracing::{level}!(")).skip(1) {
                let first = event.trim_start();
                let shown: String = first.chars().take(60).collect();
                assert!(first.starts_with("target: \"dlock\","), "{shown}");
                events += 1;
            }
        }
    }
    assert!(events > 40, "{events} events were found");
}
