//! The keys that remain on the servers after all releases.

use std::time::Duration;

use dlock_core::Clock;
use dlock_testlab::{Stop, Verdict, redis::RedisServer};
use tokio::time::sleep;

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until no claim is alive on any of these servers, and then until no key is left: the last
/// token, and what is dead and waits to be swept, stay for the retention, which is short here.
pub(crate) async fn nothing(servers: &[&RedisServer]) -> Verdict {
    let end = Clock::Boot.now().saturating_add(BOUND);
    for look in [alive, all] {
        loop {
            let mut left = Vec::new();
            for server in servers {
                left.extend(look(&Look::at(server).await?));
            }
            // The mark of the restart guard stays as long as the server's data.
            left.retain(|key: &String| !key.starts_with("dlock:{0}?guard:"));
            if left.is_empty() {
                break;
            }
            if Clock::Boot.now() >= end {
                return Err(Stop::failed(format!("this is left: {left:?}")));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// What is on a server.
struct Look {
    /// The server's clock, in microseconds.
    now: u64,
    /// Each key, the letter that tells what it holds, and that.
    keys: Vec<(String, String, Vec<String>)>,
}

impl Look {
    async fn at(server: &RedisServer) -> Result<Self, Stop> {
        let time = server.command(&["TIME"]).await?.texts()?;
        let now = time[0].parse::<u64>()? * 1_000_000 + time[1].parse::<u64>()?;
        let mut keys = Vec::new();
        for key in server.keys("dlock:{*").await? {
            let kind = key.split_once('}').map_or("", |(_, rest)| rest);
            let kind = kind.split_once(':').map_or("", |(kind, _)| kind).to_owned();
            let holds = match kind.as_str() {
                "r" => server.command(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await?,
                "w" => server.command(&["HGETALL", &key]).await?,
                _ => server.command(&["GET", &key]).await?,
            };
            // A replica of a cluster's node sends elsewhere, and a key may just have gone.
            let holds = holds.texts().unwrap_or_default();
            keys.push((key, kind, holds));
        }
        Ok(Self { now, keys })
    }
}

/// The claims whose lease runs.
fn alive(look: &Look) -> Vec<String> {
    let mut alive = Vec::new();
    for (key, kind, holds) in &look.keys {
        let until = |pair: &[String]| match kind.as_str() {
            "r" => pair[1].parse().unwrap_or(0),
            // Of a reader this is its token, which is no later than now.
            _ => pair[1].split(':').nth(4).and_then(|time| time.parse().ok()).unwrap_or(0),
        };
        match kind.as_str() {
            "" => alive.push(key.clone()),
            "r" | "w" => {
                let claims = holds.chunks_exact(2).filter(|pair| until(pair) > look.now);
                alive.extend(claims.map(|pair| format!("{key}: {pair:?}")));
            }
            _ => {}
        }
    }
    alive
}

/// Everything.
fn all(look: &Look) -> Vec<String> {
    look.keys.iter().map(|(key, _, holds)| format!("{key}: {holds:?}")).collect()
}
