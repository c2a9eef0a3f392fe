//! What is left on the servers once everybody has let go.

use std::time::Duration;

use dlock_core::Clock;
use dlock_testkit::{Stop, Verdict, servers::redis::RedisServer};
use tokio::time::sleep;

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(10);

/// Waits until no claim is alive on any of these servers. What keeps the last token, and what is
/// dead and waits to be swept, may stay for its retention.
pub(crate) async fn nothing(servers: &[&RedisServer]) -> Verdict {
    let end = Clock::Boot.now().saturating_add(BOUND);
    loop {
        let mut left = Vec::new();
        for server in servers {
            left.extend(alive(server).await?);
        }
        if left.is_empty() {
            return Ok(());
        }
        if Clock::Boot.now() >= end {
            return Err(Stop::failed(format!("this is left: {left:?}")));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The claims on this server whose lease runs.
async fn alive(server: &RedisServer) -> Result<Vec<String>, Stop> {
    let time = server.command(&["TIME"]).await?.texts()?;
    let now = time[0].parse::<u64>()? * 1_000_000 + time[1].parse::<u64>()?;
    let mut alive = Vec::new();
    for key in server.keys("dlock:{*").await? {
        let kind = key.split_once('}').map_or("", |(_, rest)| rest);
        let listed = match kind.split_once(':').map_or("", |(kind, _)| kind) {
            "" => vec![key.clone()],
            "r" => {
                let range = ["ZRANGEBYSCORE", &key, &now.to_string(), "+inf"];
                server.command(&range).await?.texts().unwrap_or_default()
            }
            "w" => {
                let claims = server.command(&["HGETALL", &key]).await?.texts().unwrap_or_default();
                claims.chunks(2).filter(|pair| until(&pair[1]) > now).flatten().cloned().collect()
            }
            _ => Vec::new(),
        };
        alive.extend(listed.into_iter().map(|claim| format!("{key}: {claim}")));
    }
    Ok(alive)
}

/// When the lease of a waiter ends; of a reader, its token, which is no later than now unless its
/// clock ran ahead.
fn until(claim: &str) -> u64 {
    claim.split(':').nth(4).and_then(|time| time.parse().ok()).unwrap_or(0)
}
