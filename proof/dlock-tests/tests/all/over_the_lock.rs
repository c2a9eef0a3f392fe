//! Elections and jobs on real stores, with processes that die.

use std::{
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use dlock::{ErrorKind, LockOptions, Locks, job::Ran};
use dlock_testlab::Stop;
use tokio::sync::mpsc;

const BOUND: Duration = Duration::from_secs(60);

/// The test that a child process runs.
const CHILD: &str = "over_the_lock::the_process_that_dies";

/// Locks of a separate client of a store.
async fn client(url: &str, lease: Duration) -> Result<Locks, Stop> {
    let locks = dlock::connect(url).await?;
    Ok(locks.with_options(LockOptions::new().with_lease(lease))?)
}

/// A child process of this test, which is killed when this value is dropped.
struct Process {
    child: Child,
    told: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a child that does `what` in the store.
    fn start(what: &str, url: &str) -> Result<Self, Stop> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", CHILD, "--ignored", "--nocapture"])
            .env("DLOCK_TEST_WHAT", what)
            .env("DLOCK_TEST_URL", url)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let told = child.stdout.take().map(BufReader::new).expect("it is a pipe");
        Ok(Self { child, told })
    }

    /// Returns the number that the child prints after it has acquired the lock.
    async fn token(mut self) -> Result<(u64, Self), Stop> {
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while self.told.read_line(&mut line)? > 0 {
                if let Some((_, token)) = line.trim_end().split_once("token=") {
                    return Ok((token.parse().expect("a token"), self));
                }
                line.clear();
            }
            Err(std::io::Error::other("it died before it had the lock"))
        });
        Ok(read.await.expect("reading does not panic")?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in a separate process, which the other tests start.
#[tokio::test]
#[ignore = "what the child processes of the other tests run"]
async fn the_process_that_dies() {
    let told = |name| std::env::var(name).ok();
    let (Some(what), Some(url)) = (told("DLOCK_TEST_WHAT"), told("DLOCK_TEST_URL")) else { return };
    let tell = |token: u64| {
        println!("token={token}");
        std::io::stdout().flush().expect("a pipe");
    };
    let locks = client(&url, Duration::from_secs(2)).await.expect("a store");
    match &*what {
        "job" => {
            let job = locks.job("dies").expect("a name");
            let job = job.with_at_least(Duration::from_secs(600)).expect("a store with leases");
            let ran = job.run(|token| async move { token.get() }).await.expect("a store");
            tell(ran.done().expect("a free lock"));
        }
        _ => {
            let leadership = locks.election("dies").expect("a name").campaign().await;
            tell(leadership.as_ref().expect("a store").term().get());
            std::future::pending::<()>().await;
        }
    }
    // The process ends without a clean-up, and without a message to the store.
    std::process::abort();
}

/// A leader's process is killed; a leader loses its term while it works.
async fn elections(url: &str) -> Result<(), Stop> {
    let lease = Duration::from_secs(2);
    let (one, two) = (client(url, lease).await?, client(url, lease).await?);

    let (term, dying) = Process::start("election", url)?.token().await?;
    let election = one.election("dies")?;
    assert!(election.try_campaign().await?.is_none(), "it leads");
    let leader = election.leader().await?.expect("it leads");
    assert_eq!(leader.token.map(|token| token.get()), Some(term));
    drop(dying);
    let next = tokio::time::timeout(BOUND, election.campaign()).await.expect("in time")?;
    assert!(next.term().get() > term);
    next.resign().await?;

    let calls = AtomicUsize::new(0);
    let (terms, mut told) = mpsc::channel(4);
    let worker = one.election("lost")?;
    let leading = worker.lead(|term| {
        let (terms, call) = (terms.clone(), calls.fetch_add(1, Ordering::SeqCst));
        async move {
            terms.send(term).await.expect("the test listens");
            match call {
                0 => std::future::pending().await,
                _ => ControlFlow::Break(term),
            }
        }
    });
    let taking = async {
        let first = told.recv().await.expect("a first term");
        two.force_release("lost").await?;
        let other = two.election("lost")?.campaign().await?;
        let between = other.term();
        other.resign().await?;
        Ok::<_, Stop>((first, between))
    };
    let both = async { tokio::join!(leading, taking) };
    let (last, taken) = tokio::time::timeout(BOUND, both).await.expect("in time");
    let ((first, between), last) = (taken?, last?);
    assert!(first < between && between < last, "{first} {between} {last}");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    for locks in [one, two] {
        locks.shutdown(BOUND).await?;
    }
    Ok(())
}

/// While a job runs, other processes find it busy.
async fn busy_jobs(url: &str) -> Result<(), Stop> {
    let lease = Duration::from_secs(2);
    let (one, two) = (client(url, lease).await?, client(url, lease).await?);
    let here = one.job("busy")?;
    let there = two.job("busy")?;
    let ran = here.run(|_| there.run(|_| async {})).await?;
    assert_eq!(ran.done().expect("it was free")?, Ran::Elsewhere);
    assert_eq!(there.run(|_| async { 1 }).await?, Ran::Done(1));
    for locks in [one, two] {
        locks.shutdown(BOUND).await?;
    }
    Ok(())
}

/// A process ends right after its job: the store keeps the lock for the minimum time, and then
/// frees it.
async fn jobs(url: &str) -> Result<(), Stop> {
    busy_jobs(url).await?;
    let lease = Duration::from_secs(2);
    let locks = client(url, lease).await?;
    let (token, mut dead) = Process::start("job", url)?.token().await?;
    dead.child.wait()?;
    let job = locks.job("dies")?;
    assert_eq!(job.run(|_| async {}).await?, Ran::Elsewhere);
    let state = locks.inspect("dies").await?;
    assert_eq!(state.holders[0].token.map(|token| token.get()), Some(token), "{state:?}");
    // Most of ten minutes remains; the lease was two seconds.
    assert!(state.holders[0].remaining > Duration::from_secs(60), "{state:?}");
    locks.force_release("dies").await?;
    assert_eq!(job.run(|_| async {}).await?, Ran::Done(()));

    let least = Duration::from_secs(3);
    let brief = locks.job("brief")?.with_at_least(least)?;
    let began = tokio::time::Instant::now();
    assert_eq!(brief.run(|_| async {}).await?, Ran::Done(()));
    let again = async {
        while brief.run(|_| async {}).await? == Ran::Elsewhere {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, Stop>(())
    };
    tokio::time::timeout(BOUND, again).await.expect("the store lets it go")?;
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    locks.shutdown(BOUND).await?;
    Ok(())
}

async fn both(url: &str) -> Result<(), Stop> {
    elections(url).await?;
    jobs(url).await
}

#[test]
fn on_sqlite() {
    let tested = async {
        let dir = tempfile::TempDir::new()?;
        let path = dir.path().join("locks.db");
        both(&format!("sqlite:{}?dlock.create_schema=true", path.display())).await
    };
    crate::run("sqlite", tested);
}

#[test]
fn on_redis() {
    use dlock_testlab::redis::{Options, RedisServer};

    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        both(&server.url()).await
    };
    crate::run("redis", tested);
}

#[test]
fn on_postgres() {
    use dlock_testlab::postgres::{Options, PostgresServer};

    let tested = async {
        let server = PostgresServer::start(&Options::new()).await?;
        both(&format!("{}?dlock.create_schema=true", server.url())).await
    };
    crate::run("postgres", tested);
}

#[test]
fn on_mariadb() {
    use dlock_testlab::mariadb::{MariadbServer, Options};

    let tested = async {
        let server = MariadbServer::start(&Options::new()).await?;
        both(&format!("{}?dlock.create_schema=true", server.url())).await
    };
    crate::run("mysql", tested);
}

/// If the locks of a store end with the process, a job has no minimum time.
#[test]
fn on_zookeeper() {
    use dlock_testlab::zookeeper::{Options, ZooKeeperServer};

    let tested = async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        let url = format!("zk://{}?dlock.session_timeout=4s", server.address());
        elections(&url).await?;
        busy_jobs(&url).await?;
        let job = client(&url, Duration::from_secs(2)).await?.job("least")?;
        assert!(job.clone().with_at_least(Duration::ZERO).is_ok());
        let error = job.with_at_least(Duration::from_millis(200)).expect_err("nobody keeps it");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        Ok(())
    };
    crate::run("zk", tested);
}

/// As on ZooKeeper.
#[test]
fn on_etcd() {
    use dlock_testlab::etcd::{EtcdServer, Options};

    let tested = async {
        let server = EtcdServer::start(&Options::new()).await?;
        let url = format!("{}?dlock.session_timeout=4s", server.url());
        elections(&url).await?;
        busy_jobs(&url).await?;
        let job = client(&url, Duration::from_secs(2)).await?.job("least")?;
        let error = job.with_at_least(Duration::from_millis(200)).expect_err("nobody keeps it");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        Ok(())
    };
    crate::run("etcd", tested);
}
