//! A test that panics, is killed or times out leaves nothing behind.

use std::{
    env,
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use dlock_testlab::{
    Stop, Verdict,
    mariadb::{self, MariadbServer},
    postgres::{self, PgBouncer, PostgresServer},
    redis::{Options, RedisServer},
    zookeeper::{self, Ensemble, JavaProgram, ZooKeeperServer},
};
use tokio::time::{sleep, timeout};

use crate::{gone, is_alive, with, with_redis};

/// If this variable is set, the test binary starts a server and waits to be killed.
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
    // If the machine stalls, the test is repeated in another process, and does not panic in this one.
    let caught = catch_unwind(panics);
    match left.into_inner().unwrap() {
        Some((pid, directory)) => assert!(!is_alive(pid) && !directory.exists()),
        None => assert!(caught.is_ok(), "the server does not start"),
    }
}

#[test]
fn a_process_that_is_killed_leaves_nothing_behind() {
    with_redis(async {
        // Reports whether the server is installed.
        drop(RedisServer::start(&Options::new()).await?);
        Victim::start("redis")?.dies().await
    });
    with("postgres", async {
        drop(PostgresServer::start(&postgres::Options::new()).await?);
        Victim::start("postgres")?.dies().await
    });
    with("mysql", async {
        drop(MariadbServer::start(&mariadb::Options::new()).await?);
        Victim::start("mysql")?.dies().await
    });
    with("zk", async {
        drop(JavaProgram::start("", &[]).await?);
        Victim::start("zk")?.dies().await
    });
}

/// A process that has started servers.
struct Victim {
    process: Child,
    pids: Vec<u32>,
    directories: Vec<PathBuf>,
}

impl Victim {
    /// Starts this test binary again as a victim with servers of this kind.
    fn start(kind: &str) -> Result<Self, Stop> {
        let mut process = Command::new(env::current_exe()?)
            .args(["remains::victim", "--exact", "--nocapture"])
            .env(VICTIM, kind)
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains(VICTIM));
        let line = line.expect("a line of the victim");
        let words = || line.split(' ').skip(1);
        let pids: Vec<u32> = words().filter_map(|word| word.parse().ok()).collect();
        let directories: Vec<_> = words().filter(|word| word.contains('/')).collect();
        assert!(!pids.is_empty() && pids.iter().copied().all(is_alive), "{line}");
        assert!(!directories.is_empty() && directories.iter().all(|left| Path::new(left).exists()));
        Ok(Self { process, pids, directories: directories.iter().map(PathBuf::from).collect() })
    }

    /// Kills the process, and waits until nothing is left.
    async fn dies(mut self) -> Verdict {
        self.process.kill()?;
        self.process.wait()?;
        for pid in self.pids {
            gone(pid).await;
        }
        let removed = async {
            while self.directories.iter().any(|left| left.exists()) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        Ok(timeout(Duration::from_secs(60), removed).await?)
    }
}

#[test]
fn a_missing_server_ignores_the_test_unless_it_is_required() {
    let one = "redis::a_server_answers_and_leaves_nothing_behind";
    for (required, passes) in [("other", true), ("other,redis", false)] {
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

#[test]
fn the_other_servers_can_be_missing_too() {
    for (kind, test, bin) in [
        ("postgres", "postgres::options_reach_the_server", "DLOCK_TEST_POSTGRES_BIN"),
        ("mysql", "mariadb::options_reach_the_server", "DLOCK_TEST_MARIADB_BIN"),
        ("zk", "zookeeper::options_reach_the_server", "DLOCK_TEST_ZOOKEEPER_CLASSPATH"),
    ] {
        for (required, passes) in [("other", true), (kind, false)] {
            let output = Command::new(env::current_exe().unwrap())
                .args([test, "--exact", "--nocapture"])
                .env(bin, "/nowhere")
                .env("DLOCK_TEST_REQUIRE", required)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.success(), passes, "{text}");
            assert_eq!(text.contains(&format!("ignored: {bin} is /nowhere")), passes, "{text}");
        }
    }
}

/// Not a test: the process that is killed.
#[test]
fn victim() {
    let Ok(kind) = env::var(VICTIM) else {
        return;
    };
    with(&kind, async {
        match kind.as_str() {
            "redis" => redis_victim().await,
            "postgres" => postgres_victim().await,
            "zk" => zookeeper_victim().await,
            _ => mariadb_victim().await,
        }
    });
}

async fn redis_victim() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let paused = RedisServer::start(&Options::new()).await?;
    let killed = RedisServer::start(&Options::new()).await?;
    paused.pause()?;
    killed.kill();
    let pids = [server.pid(), paused.pid()].into_iter().flatten().collect();
    waits(pids, &[server.directory(), paused.directory(), killed.directory()]).await
}

async fn postgres_victim() -> Verdict {
    let server = PostgresServer::start(&postgres::Options::new()).await?;
    let bouncer = PgBouncer::start(&server, &[]).await?;
    let paused = PostgresServer::start(&postgres::Options::new()).await?;
    let mut pids: Vec<u32> =
        [server.pid(), bouncer.pid(), paused.pid()].into_iter().flatten().collect();
    let backends = "select pid from pg_stat_activity where pid <> pg_backend_pid()";
    for server in [&server, &paused] {
        let rows = server.query(backends).await?.concat();
        pids.extend(rows.iter().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    paused.pause()?;
    waits(pids, &[server.directory(), bouncer.directory(), paused.directory()]).await
}

async fn mariadb_victim() -> Verdict {
    let server = MariadbServer::start(&mariadb::Options::new()).await?;
    let paused = MariadbServer::start(&mariadb::Options::new()).await?;
    paused.pause()?;
    let pids = [server.pid(), paused.pid()].into_iter().flatten().collect();
    waits(pids, &[server.directory(), paused.directory()]).await
}

async fn zookeeper_victim() -> Verdict {
    let ensemble = Ensemble::start(&zookeeper::Options::new()).await?;
    let paused = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
    paused.pause()?;
    let sleeps = "class Main { public static void main(String[] args) throws Exception { \
                  System.out.println(System.getProperty(\"user.dir\")); Thread.sleep(60000); } }";
    let mut program = JavaProgram::start(sleeps, &[]).await?;
    let directory = program.line().await?;
    let servers = || ensemble.nodes().iter().chain([&paused]);
    let pids = servers().filter_map(ZooKeeperServer::pid).chain(program.pid()).collect();
    let directories: Vec<&Path> =
        servers().map(ZooKeeperServer::directory).chain([Path::new(&directory)]).collect();
    waits(pids, &directories).await
}

/// Prints its servers and files, and waits for its end.
async fn waits(pids: Vec<u32>, directories: &[&Path]) -> Verdict {
    let pids = pids.iter().map(u32::to_string);
    let directories = directories.iter().map(|path| path.display().to_string());
    println!("\n{VICTIM} {}", pids.chain(directories).collect::<Vec<_>>().join(" "));
    std::future::pending().await
}
