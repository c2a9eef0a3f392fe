//! The command `dlock-soak`, run as its users do.

use std::process::{Command, Output};

fn soak(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dlock-soak")).args(args).output().expect("it can be run")
}

#[test]
fn wrong_arguments_are_refused_with_the_right_ones() {
    for (args, says) in [
        (&[][..], "--url private:redis"),
        (&["--url", "private:oracle"][..], "one of memory, sqlite, redis"),
        (&["--url", "private:memory", "--minutes", "0"][..], "or more"),
        (&["--url", "private:memory", "--report", "/dev/null/x"][..], "/dev/null/x"),
    ] {
        let output = soak(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
}

#[test]
fn the_secret_of_a_url_is_not_shown() {
    let url = "redis://user:hidden@127.0.0.1:1";
    let output = soak(&["--url", url, "--minutes", "0.5"]);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(!text.contains("hidden"), "{text}");
    // A process that could not begin has no output.
    assert_eq!(output.status.code(), Some(3), "{text}");
}

#[test]
fn all_private_stores_are_listed() {
    let output = soak(&["--list"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for store in ["memory", "sqlite", "redis-quorum", "postgres", "mysql", "zk", "etcd"] {
        assert!(text.contains(&format!("private:{store}")), "{text}");
    }
}
