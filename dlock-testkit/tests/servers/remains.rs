//! That nothing is left behind when a test ends in other ways than by its end.

use std::{
    env,
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use dlock_testkit::servers::redis::{Options, RedisServer, Resp};
use tokio::time::{sleep, timeout};

use crate::{is_alive, with_redis};

/// Its presence makes the test binary a process that starts a server and is to be killed.
const VICTIM: &str = "DLOCK_TEST_VICTIM";

#[test]
fn a_test_that_panics_leaves_nothing_behind() {
    let left = Mutex::new(None);
    let panics = AssertUnwindSafe(|| {
        with_redis(async {
            let server = RedisServer::start(&Options::new()).await?;
            *left.lock().unwrap() = Some((server.pid().unwrap(), server.directory().to_owned()));
            panic!("on purpose")
        });
    });
    let panicked = catch_unwind(panics).is_err();
    if let Some((pid, directory)) = left.into_inner().unwrap() {
        assert!(panicked && !is_alive(pid) && !directory.exists());
    }
}

#[test]
fn a_process_that_is_killed_leaves_nothing_behind() {
    with_redis(async {
        // Says whether there is a server at all.
        drop(RedisServer::start(&Options::new()).await?);
        let victim = "remains::victim";
        let mut victim = Command::new(env::current_exe()?)
            .args([victim, "--exact", "--nocapture"])
            .env(VICTIM, "1")
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains(VICTIM)).unwrap();
        let [_, address, directory, paused] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        Resp::connect(address).await?.command(&["PING"]).await?.ok()?;
        assert!([directory, paused].iter().all(|left| Path::new(left).exists()));

        victim.kill()?;
        victim.wait()?;
        let gone = async {
            let remains = || [directory, paused].iter().any(|left| Path::new(left).exists());
            while Resp::connect(address).await.is_ok() || remains() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        Ok(timeout(Duration::from_secs(20), gone).await?)
    });
}

#[test]
fn a_server_that_is_missing_ignores_the_test_unless_it_is_required() {
    let one = "redis::a_server_answers_and_leaves_nothing_behind";
    for (required, passes) in [("zk", true), ("zk,redis", false)] {
        let output = Command::new(env::current_exe().unwrap())
            .args([one, "--exact", "--nocapture"])
            .env("DLOCK_TEST_REDIS_SERVER", "/nowhere/redis-server")
            .env("DLOCK_TEST_REQUIRE", required)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), passes, "{text}");
        assert_eq!(text.contains("ignored: DLOCK_TEST_REDIS_SERVER is"), passes, "{text}");
    }
}

/// No test of its own: the process that is killed.
#[test]
fn victim() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let paused = RedisServer::start(&Options::new()).await?;
        paused.pause()?;
        let (address, directory) = (server.address(), server.directory().display());
        println!("\n{VICTIM} {address} {directory} {}", paused.directory().display());
        std::future::pending().await
    });
}
