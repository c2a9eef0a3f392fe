//! How the command finds the store, and waits until it is reachable.

use std::fs;

use dlock_testlab::{
    judge,
    redis::{Options, RedisServer},
};

use crate::support::{Dlock, Running, bare, went};

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_starts_late_is_waited_for() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        server.kill();
        let dlock = Dlock::on(server.url());
        let commands = [
            &["run", "-n", "a", "-v", "--wait", "60s", "--", "echo", "ran"][..],
            &[
                "run",
                "-n",
                "b",
                "-v",
                "--wait",
                "0",
                "--connect-timeout",
                "60s",
                "--",
                "echo",
                "ran",
            ],
            &["--connect-timeout", "60s", "doctor"],
            &["list", "--connect-timeout", "60s"],
        ];
        let mut running = commands.map(|args| Running::start(dlock.command(args)));
        for waiting in &mut running[..2] {
            let told = waiting.complaint();
            assert!(told.contains("refused") && told.ends_with("; retrying"), "{told}");
        }
        server.restart().await?;
        for (args, one) in commands.iter().zip(running) {
            let went = one.ended();
            assert_eq!(went.code, Some(0), "{args:?}: {went:?}");
            assert!(!args.contains(&"run") || went.out == "ran\n", "{went:?}");
        }
        Ok(())
    };
    judge("redis", tested.await);
}

#[test]
fn an_unreachable_store_fails_after_the_limit_with_its_error() {
    let run = ["run", "-n", "a", "--wait", "60s", "--connect-timeout", "1s", "--", "echo", "ran"];
    for args in [&["list", "--connect-timeout", "1s"][..], &run] {
        for (url, reason) in STORES {
            let failed = went(bare(args).env("DLOCK_URL", url));
            assert_eq!((failed.code, failed.out.as_str()), (Some(122), ""), "{failed:?}");
            assert!(failed.err.contains(reason), "{url}: {failed:?}");
        }
    }
}

/// URLs of every kind of server, on a port without a listener, and the store's own reason.
const STORES: [(&str, &str); 9] = [
    ("redis://127.0.0.1:1", "refused"),
    ("redis+sentinel://127.0.0.1:1/main", "refused"),
    ("redis+cluster://127.0.0.1:1", "refused"),
    ("redis+quorum://127.0.0.1:1,127.0.0.2:1,127.0.0.3:1", "refused"),
    ("postgres://u@127.0.0.1:1/d", "refused"),
    ("postgres://u@127.0.0.1:1/d?dlock.advisory=true", "refused"),
    ("mysql://u@127.0.0.1:1/d", "refused"),
    ("zk://127.0.0.1:1", "no server can be reached"),
    ("etcd://127.0.0.1:1", "refused"),
];

#[test]
fn a_wrong_setting_is_not_retried() {
    // With retries this would take a day.
    let patient = ["list", "--connect-timeout", "1day", "--url"];
    let directory = tempfile::tempdir().unwrap();
    let missing = format!("sqlite:{}/locks.db", directory.path().display());
    for url in ["redis://127.0.0.1:1?dlock.nope=1", "nowhere:", &missing] {
        let failed = went(&mut bare(&[&patient[..], &[url]].concat()));
        assert_eq!(failed.code, Some(125), "{failed:?}");
    }
}

#[test]
fn the_url_stands_before_or_after_the_subcommand_or_in_a_file() {
    let dlock = Dlock::on_sqlite();
    let held = dlock.hold(&["--name", "a"], crate::support::HOLD);
    let file = dlock.directory.path().join("url");
    fs::write(&file, format!("  {}\n\n", dlock.url)).unwrap();
    // The file has a byte order mark, and the line ends of another system.
    let marked = dlock.directory.path().join("marked");
    fs::write(&marked, format!("\u{feff}{}\r\n", dlock.url)).unwrap();
    let (file, marked) = (file.to_str().unwrap(), marked.to_str().unwrap());
    let url = dlock.url.as_str();
    for args in [
        &["--url", url, "list"][..],
        &["list", "--url", url],
        &["list", "--url-file", file],
        &["list", "--url-file", marked],
        &["--url-file", file, "list"],
    ] {
        let listed = went(&mut bare(args));
        assert_eq!(listed.code, Some(0), "{listed:?}");
        assert!(listed.out.starts_with("a: held by 1"), "{listed:?}");
    }
    let by_variable =
        |more: (&str, &str)| went(bare(&["list"]).env("DLOCK_URL_FILE", file).env(more.0, more.1));
    assert!(by_variable(("DLOCK_URL", "")).out.starts_with("a: held by 1"));
    assert_eq!(by_variable(("DLOCK_URL", "nowhere")).code, Some(125), "DLOCK_URL goes first");
    let both = went(&mut bare(&["list", "--url", url, "--url-file", file]));
    assert_eq!(both.code, Some(125), "{both:?}");
    assert_eq!(held.finish().code, Some(0));
}

#[test]
fn a_file_without_one_url_is_refused_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    let path = file.to_str().unwrap();
    let missing = went(&mut bare(&["list", "--url-file", path]));
    assert!(missing.code == Some(125) && missing.err.contains("check the path"), "{missing:?}");
    for (text, why) in [
        ("", "is empty"),
        ("\u{feff} \r\n", "is empty"),
        ("redis://u:hunter2@h\nredis://u:hunter2@i", "has several lines"),
        ("redis:u:hunter2@h", "redis"),
    ] {
        fs::write(&file, text).unwrap();
        let refused = went(&mut bare(&["list", "--url-file", path]));
        assert_eq!(refused.code, Some(125), "{refused:?}");
        assert!(refused.err.contains(why) && !refused.err.contains("hunter2"), "{refused:?}");
    }
    fs::write(&file, [0xff]).unwrap();
    assert_eq!(went(&mut bare(&["list", "--url-file", path])).code, Some(125));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_reported_while_it_lasts() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        let dlock = Dlock::on(server.url());
        let args = ["--name", "a", "--lease", "5m", "-v"];
        let mut held = dlock.hold(&args, crate::support::HOLD);
        assert!(held.complaint().contains("acquired lock"));
        let mut waiting =
            Running::start(dlock.command(&[&["run"][..], &args, &["--", "true"]].concat()));
        assert!(waiting.complaint().contains("held by 1"));
        server.pause()?;
        let told = waiting.complaint();
        assert!(told.contains("the wait goes on"), "{told}");
        server.resume()?;
        let told = waiting.complaint();
        assert!(told.contains("waiting for lock") && told.contains("held by 1"), "{told}");
        assert_eq!(held.finish().code, Some(0));
        assert_eq!(waiting.ended().code, Some(0));
        Ok(())
    };
    judge("redis", tested.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_fails_is_reported() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        let dlock = Dlock::on(server.url());
        let mut held = dlock.hold(&["--name", "a", "--lease", "15s", "-v"], crate::support::HOLD);
        assert!(held.complaint().contains("acquired lock"));
        server.pause()?;
        let told = held.complaint();
        assert!(told.contains("could not be renewed"), "{told}");
        server.resume()?;
        let told = held.complaint();
        assert!(told.contains("renewed lock") || told.contains("was lost"), "{told}");
        held.finish();
        Ok(())
    };
    judge("redis", tested.await);
}
