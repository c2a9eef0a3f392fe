//! Where events come from.

mod outside {
    use std::{fs, path::Path};

    /// The files of a crate's sources.
    fn sources(of: &Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(of).expect("sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|end| end == "rs") {
                all.push(fs::read_to_string(&path).expect("a text"));
            }
        }
    }

    #[test]
    fn every_event_has_the_target_dlock() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut all = Vec::new();
        for name in ["core", "redis", "sql", "zk"] {
            sources(&root.join(format!("dlock-{name}/src")), &mut all);
        }
        let mut events = 0;
        for text in &all {
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
}
