//! The wall clocks of running servers can be stepped.

use std::time::Duration;

use dlock_testlab::{
    Server, SteppedClock, Stop, Verdict,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{self, RedisServer},
    zookeeper::{self, ZooKeeperServer},
};

use crate::{watcher::Watcher, with, with_redis};

/// Much longer than any test, so the time between two readings does not matter.
const STEP: Duration = Duration::from_secs(24 * 3600);

/// Returns the number of whole steps by which the clock was moved. `look` returns the clock in
/// seconds.
async fn steps_since(
    start: i64,
    look: impl AsyncFn() -> Result<i64, Stop> + Send + Sync,
) -> Result<i64, Stop> {
    let (step, half) = (24 * 3600, 12 * 3600);
    Ok((look().await? - start + half).div_euclid(step))
}

/// The server uses the clock, at its first start and at the next.
async fn assert_steps<O: Send + Sync + 'static>(
    clock: &SteppedClock,
    server: &Server<O>,
    look: impl AsyncFn() -> Result<i64, Stop> + Send + Sync,
) -> Verdict {
    let start = look().await?;
    for lives in 0..2 {
        clock.forward(STEP)?;
        assert_eq!(steps_since(start, &look).await?, 1, "life {lives}");
        clock.back(STEP * 2)?;
        assert_eq!(steps_since(start, &look).await?, -1, "life {lives}");
        for _ in 0..10 {
            clock.forward(STEP)?;
            assert_eq!(steps_since(start, &look).await?, 0, "life {lives}");
            clock.forward(STEP)?;
            assert_eq!(steps_since(start, &look).await?, 1, "life {lives}");
            clock.back(STEP * 2)?;
        }
        // The server starts while the clock is wrong.
        server.restart().await?;
        assert_eq!(steps_since(start, &look).await?, -1, "life {lives}");
        clock.reset()?;
        assert_eq!((clock.offset(), steps_since(start, &look).await?), (0, 0), "life {lives}");
    }
    Ok(())
}

fn seconds(rows: Vec<Vec<String>>) -> Result<i64, Stop> {
    Ok(rows.concat().concat().parse()?)
}

#[test]
fn the_clock_of_redis_steps_and_its_keys_end_by_it() {
    with_redis(async {
        let clock = SteppedClock::start().await?;
        let server = RedisServer::start(&redis::Options::new().with_clock(&clock)).await?;
        let look = async || {
            let time = server.command(&["TIME"]).await?.ok()?.texts()?;
            Ok(time.first().ok_or_else(|| Stop::failed("no time"))?.parse()?)
        };
        assert_steps(&clock, &server, look).await?;

        server.command(&["SET", "a", "1", "PX", "3600000"]).await?.ok()?;
        assert_eq!(server.keys("*").await?, ["a"]);
        clock.forward(STEP)?;
        assert!(server.keys("*").await?.is_empty());
        Ok(())
    });
}

#[test]
fn a_clock_stands_still_until_it_is_stepped() {
    with_redis(async {
        let clock = SteppedClock::start().await?;
        let server = RedisServer::start(&redis::Options::new().with_clock(&clock)).await?;
        let time = async || server.command(&["TIME"]).await?.ok()?.texts();
        for (seconds, micros) in [(2_000_000_000, 7), (1_000_000_000, 0)] {
            clock.stop_at(Duration::new(seconds, micros * 1000))?;
            for _ in 0..2 {
                assert_eq!(time().await?, [seconds.to_string(), micros.to_string()]);
            }
        }
        clock.reset()?;
        assert!(time().await? != time().await?);
        Ok(())
    });
}

#[test]
fn the_clock_of_postgres_steps() {
    with("postgres", async {
        let clock = SteppedClock::start().await?;
        let options = postgres::Options::new().with_clock(&clock);
        let server = PostgresServer::start(&options).await?;
        let now = "select floor(extract(epoch from clock_timestamp()))";
        let look = async || seconds(server.query(now).await?);
        assert_steps(&clock, &server, look).await
    });
}

#[test]
fn the_clock_of_mariadb_steps() {
    with("mysql", async {
        let clock = SteppedClock::start().await?;
        let options = mariadb::Options::new().with_clock(&clock);
        let server = MariadbServer::start(&options).await?;
        let now = "select timestampdiff(second, '1970-01-01', utc_timestamp(6))";
        let look = async || seconds(server.query(now).await?);
        assert_steps(&clock, &server, look).await
    });
}

#[test]
fn the_clock_of_zookeeper_steps_and_its_sessions_last() {
    with("zk", async {
        let clock = SteppedClock::start().await?;
        let options = zookeeper::Options::new().with_clock(&clock);
        let server = ZooKeeperServer::start(&options).await?;
        // The answer contains the time at which a session's connection began, in milliseconds.
        let look = async || {
            let _session = Watcher::connect(&server.address()).await?;
            let cons = server.four_letter_word("cons").await?;
            let begun = cons.split("est=").skip(1).filter_map(|rest| rest.split(',').next());
            let begun = begun.map(|begun| begun.parse::<i64>()).collect::<Result<Vec<_>, _>>()?;
            Ok(begun.into_iter().max().ok_or_else(|| Stop::failed(cons))? / 1000)
        };
        let start = look().await?;
        let mut session = Watcher::connect(&server.address()).await?;
        server.create("/a", "").await?;
        clock.forward(STEP)?;
        assert_eq!(steps_since(start, &look).await?, 1);
        assert!(session.watch("/a").await?);
        clock.reset()?;
        assert!(session.watch("/a").await?);
        Ok(())
    });
}

#[test]
fn servers_without_the_clock_keep_theirs() {
    with_redis(async {
        let clock = SteppedClock::start().await?;
        let server = RedisServer::start(&redis::Options::new().with_clock(&clock)).await?;
        let other = RedisServer::start(&redis::Options::new()).await?;
        let (another, with_another) = {
            let another = SteppedClock::start().await?;
            let server = RedisServer::start(&redis::Options::new().with_clock(&another)).await?;
            (another, server)
        };
        clock.back(STEP)?;
        let mut times = Vec::new();
        for server in [&server, &other, &with_another] {
            let time = server.command(&["TIME"]).await?.ok()?.texts()?;
            times.push(time[0].parse::<i64>()?);
        }
        assert!(times[0] + 3600 < times[1] && times[0] + 3600 < times[2], "{times:?}");

        // A clock exists for as long as a server uses it, even if its value was dropped.
        another.forward(STEP)?;
        drop(another);
        with_another.restart().await?;
        let time = with_another.command(&["TIME"]).await?.ok()?.texts()?;
        assert!(time[0].parse::<i64>()? > times[2] + 3600);
        Ok(())
    });
}
