//! Two clients of each store, and the counters of their traffic.

use std::{fs, path::PathBuf, time::Duration};

use dlock::{LockName, Locks, admin::Mode, guarantees::WakeUp};
use dlock_core::{AcquireRequest, Acquired, Released, Renewal, Renewed};
use dlock_testlab::{
    Protocol, Proxy, Stop, Verdict,
    etcd::{self, EtcdServer},
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{self, RedisServer},
    zookeeper::{self, ZooKeeperServer},
};

use super::{Cost, Tally, all, compare};

/// The smallest and the largest number of runs. On a busy machine, more requests of other
/// operations come between the two readings of a meter.
const TIMES: usize = 7;
const MOST: usize = 40;

/// The response timeout is long, so that a busy machine causes no retries.
const PATIENT: &str = "dlock.response_timeout=30s";

/// Longer than any test here, so that no renewal is sent by itself.
const LEASE: Duration = Duration::from_secs(300);
/// After this time, the background requests of an operation have been sent.
const SETTLED: Duration = Duration::from_millis(30);

#[test]
fn redis_costs_what_is_written() {
    let counted = async {
        let server = RedisServer::start(&redis::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::Redis).await?;
            let url = format!("redis://{}?{PATIENT}", proxy.address());
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("Redis", &link().await?, &link().await?).await
    };
    crate::run("redis", counted);
}

#[test]
fn postgresql_costs_what_is_written() {
    let counted = async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::Postgres).await?;
            let url = server.url().replace(&server.address(), &proxy.address());
            let url = format!("{url}?dlock.create_schema=true&{PATIENT}");
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("PostgreSQL", &link().await?, &link().await?).await
    };
    crate::run("postgres", counted);
}

#[test]
fn mysql_costs_what_is_written() {
    let counted = async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start(&server.address()).await?;
            let url = server.url().replace(&server.address(), &proxy.address());
            let url = format!("{url}?dlock.create_schema=true&{PATIENT}");
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("MySQL and MariaDB", &link().await?, &link().await?).await
    };
    crate::run("mysql", counted);
}

#[test]
fn zookeeper_costs_what_is_written() {
    let counted = async {
        let server = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::ZooKeeper).await?;
            let url = format!("zk://{}", proxy.address());
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("ZooKeeper", &link().await?, &link().await?).await
    };
    crate::run("zk", counted);
}

#[test]
fn etcd_costs_what_is_written() {
    let counted = async {
        let server = EtcdServer::start(&etcd::Options::new()).await?;
        let link = async || {
            let proxy = Proxy::start_for(&server.address(), Protocol::Etcd).await?;
            // Heartbeats are so rare that most counts contain none.
            let url = format!("etcd://{}?dlock.session_timeout=5m", proxy.address());
            Client::connect(&url, Meter::Wire(proxy)).await
        };
        count("etcd", &link().await?, &link().await?).await
    };
    crate::run("etcd", counted);
}

#[test]
fn sqlite_costs_what_is_written() {
    let counted = async {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("locks.db");
        let url = format!("sqlite:{}?dlock.create_schema=true", file.display());
        let link = async || {
            let log = Log(file.with_extension("db-wal"));
            Client::connect(&url, Meter::Log(log)).await
        };
        count("SQLite", &link().await?, &link().await?).await
    };
    crate::run("sqlite", counted);
}

/// Makes these clients run all operations, and compares the costs with the table below a heading.
async fn count(heading: &str, one: &Client, other: &Client) -> Verdict {
    // The first run opens connections and prepares statements.
    all(one, other, &mut Tally::default()).await?;
    let mut tally = Tally::default();
    for time in 1..=MOST {
        all(one, other, &mut tally).await?;
        if time >= TIMES && compare(heading, &tally.usual()).is_ok() {
            break;
        }
    }
    for client in [one, other] {
        client.locks.shutdown(std::time::Duration::from_secs(10)).await?;
    }
    compare(heading, &tally.usual())
}

/// A separate client.
pub(crate) struct Client {
    pub(crate) locks: Locks,
    meter: Meter,
}

/// The source of its counts.
#[derive(Debug)]
enum Meter {
    Wire(Proxy),
    Log(Log),
}

impl Client {
    async fn connect(url: &str, meter: Meter) -> Result<Self, Stop> {
        Ok(Self { locks: dlock::connect(url).await?, meter })
    }

    /// Whether the store notifies a waiter of its grant, over the waiter's own connection. A polling waiter
    /// has no fixed cost, and the log of SQLite belongs to both clients.
    pub(crate) fn is_notified(&self) -> bool {
        matches!(self.meter, Meter::Wire(_)) && self.locks.guarantees().wake_up == WakeUp::Push
    }

    /// Returns the costs so far, including background requests.
    pub(crate) async fn spent(&self) -> Result<Cost, Stop> {
        tokio::time::sleep(SETTLED).await;
        self.spent_now()
    }

    /// Returns the costs so far.
    pub(crate) fn spent_now(&self) -> Result<Cost, Stop> {
        match &self.meter {
            Meter::Wire(proxy) => Ok(Cost::of(proxy)),
            Meter::Log(log) => log.cost(),
        }
    }

    /// What this costs.
    pub(crate) async fn cost_of(&self, what: impl Future<Output = Verdict>) -> Result<Cost, Stop> {
        let before = self.spent().await?;
        what.await?;
        Ok(self.spent().await?.since(before))
    }

    /// Acquires a lock that must be free.
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Verdict {
        self.hold(request).await.map(drop)
    }

    /// Acquires a lock that must be free. Returns a renewal of its grant.
    pub(crate) async fn hold(&self, request: &AcquireRequest) -> Result<Renewal, Stop> {
        let Acquired::Granted(grant) = self.locks.backend().acquire(request).await? else {
            return Err(Stop::failed(format!("{} is not granted", request.name)));
        };
        let renewal = Renewal::new(request.as_claim(), request.mode, request.lease);
        Ok(renewal.with_token(grant.token))
    }

    /// Joins the queue of a lock that must not be free.
    pub(crate) async fn queue(&self, request: &AcquireRequest) -> Verdict {
        match self.locks.backend().acquire(request).await? {
            Acquired::Queued => Ok(()),
            other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
        }
    }

    /// Waits until a claim is granted.
    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Verdict {
        self.locks.backend().granted(request).await?;
        Ok(())
    }

    /// Releases a claim that must exist.
    pub(crate) async fn free(&self, request: &AcquireRequest) -> Verdict {
        match self.locks.backend().release(&request.as_claim()).await? {
            Released::Released => Ok(()),
            other => Err(Stop::failed(format!("{} was {other:?}", request.name))),
        }
    }

    /// Renews claims that must be held.
    pub(crate) async fn renew(&self, renewals: &[Renewal]) -> Verdict {
        let renewed = self.locks.backend().renew(renewals).await?;
        match renewed.iter().all(|renewed| *renewed == Renewed::Kept) {
            true => Ok(()),
            false => Err(Stop::failed(format!("not all are kept: {renewed:?}"))),
        }
    }
}

/// A claim of this name.
pub(crate) fn claim(name: &str, mode: Mode) -> Result<AcquireRequest, Stop> {
    Ok(AcquireRequest::new(LockName::new(name)?, mode, LEASE))
}

const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

/// The log of this file.
#[derive(Debug)]
struct Log(pub(crate) PathBuf);

impl Log {
    /// The contents of the log.
    pub(crate) fn cost(&self) -> Result<Cost, Stop> {
        let log = fs::read(&self.0)?;
        let page = number(&log, 8).ok_or_else(|| Stop::failed("a log without a head"))?;
        let frame = FRAME_HEAD + usize::try_from(page).map_err(|_| Stop::failed("a huge page"))?;
        let mut cost = Cost::default();
        for frame in log[HEAD..].chunks_exact(frame) {
            // Frames of an earlier log have other numbers than the header.
            if frame[8..16] != log[16..24] {
                break;
            }
            cost.bytes += u64::try_from(frame.len()).unwrap_or_default();
            cost.round_trips += u64::from(number(frame, 4) != Some(0));
        }
        Ok(cost)
    }
}

/// The number of four bytes at this place.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}
