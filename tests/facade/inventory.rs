//! Runs the example `inventory` with small numbers, and reads its output.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// Cargo builds the examples before the tests, beside them.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.parent().and_then(Path::parent).expect("it is in target/PROFILE/deps");
    let path = profile.join("examples").join(format!("inventory{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.exists(),
        "{} is not built: cargo build --features sqlite --example inventory",
        path.display()
    );
    path
}

/// Runs it with its temporary files in `tmp`.
fn play(tmp: &TempDir, args: &[&str]) -> Output {
    Command::new(example()).args(args).env("TMPDIR", tmp.path()).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it writes UTF-8")
}

const SMALL: [&str; 6] = ["--workers", "3", "--items", "12", "--buyers", "40"];

#[test]
fn the_inventory_oversells_only_without_a_lock() {
    let tmp = TempDir::new().unwrap();
    let output = play(&tmp, &SMALL);
    let (account, progress) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{account}{progress}");
    assert!(account.contains("=> OVERSOLD by "), "{account}");
    assert!(account.contains("12 buyers were told \"it is yours\", 28 \"sold out\""), "{account}");
    assert!(account.contains("=> SOLD EXACTLY 12 "), "{account}");
    assert!(account.contains("the stock refuses:\n     fencing token "), "{account}");
    assert!(account.contains("=> REFUSED the late write, sold once"), "{account}");
    assert!(account.contains("All as promised, in "), "{account}");
    // Plain lines where there is no terminal: no escape sequence, no carriage return.
    assert!(progress.contains("20 of 40 buyers served\n"), "{progress}");
    assert!(!(account + &progress).contains(['\u{1b}', '\r']));
}

#[test]
fn leaves_no_file_behind() {
    let tmp = TempDir::new().unwrap();
    assert!(play(&tmp, &SMALL).status.success());
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn takes_a_url() {
    let (tmp, store) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = store.path().join("mine.db");
    let url = format!("sqlite:{}?dlock.create_schema=true&dlock.prefix=shop/", file.display());
    let output = play(&tmp, &[&["--url", &url], &SMALL[..]].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("mine.db"));
    assert!(file.exists());
}

#[test]
fn wrong_arguments_and_urls_are_refused_with_exit_code_2() {
    let tmp = TempDir::new().unwrap();
    let missing = format!("sqlite:{}/none/x.db", tmp.path().display());
    for (args, said) in [
        (&["--workers", "1"][..], "--workers 1 is not between 2 and 64"),
        (&["--workers", "many"], "--workers many is not a whole number"),
        (&["--items", "0"], "--items 0"),
        (&["--items", "9", "--buyers", "9"], "10 (one more than items)"),
        (&["--speed", "9"], "--speed"),
        (&["--url"], "--url"),
        (&["--url", "nowhere"], "scheme"),
        (&["--url", "consul://user:hunter2@host"], "consul:"),
        (&["--url", "memory:?dlock.leese=1s"], "dlock.leese"),
        // The store works, but only one process can use it.
        (&["--url", "memory:"], "reach"),
        (&["--url", &missing], "x.db"),
    ] {
        let output = play(&tmp, args);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(complaint.starts_with("inventory: "), "{args:?}: {complaint}");
        assert!(complaint.contains(said), "{args:?}: {complaint}");
        assert!(!complaint.contains("hunter2"), "{complaint}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn help_is_no_error() {
    let tmp = TempDir::new().unwrap();
    let output = play(&tmp, &["--help"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("--workers N"));
}

/// If the example is interrupted, it ends its workers and removes its files.
#[cfg(unix)]
#[test]
fn interrupted_it_leaves_nothing_behind() {
    use std::process::Stdio;

    use rustix::process::{Pid, Signal, kill_process};

    let tmp = TempDir::new().unwrap();
    let mut shop = Command::new(example())
        .args(["--items", "100000", "--buyers", "1000000"])
        .env("TMPDIR", tmp.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The example has begun when its files exist.
    while std::fs::read_dir(tmp.path()).unwrap().count() == 0 {
        assert!(shop.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill_process(Pid::from_child(&shop), Signal::TERM).unwrap();
    assert_eq!(shop.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
}
