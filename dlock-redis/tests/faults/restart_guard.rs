//! The restart guard is checked for the connection that is used, not when a request starts.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::time::Duration;

use dlock_core::{Acquired, Clock, Error, Grant, LockName, Queue};
use dlock_testlab::{
    Door, Proxy, Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::{task::spawn, time::sleep};

use crate::{claims::ask, connect};

/// An acquire that finds the connection closed waits for the next one. That may lead to a server
/// that has just lost its data, so the guard applies to it, too.
pub(crate) async fn holds_for_attempts_that_wait_for_the_connection() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let url = format!("{}?dlock.restart_guard=4s&dlock.response_timeout=5s", server.url());
    let (first, second) = (connect(url.clone()).await?, connect(url).await?);
    // The clients must see the server run for as long as the guard lasts.
    sleep(Duration::from_secs(5)).await;
    let (name, lease) = (LockName::new("guarded")?, Duration::from_secs(4));
    let held = first.acquire(&ask(&name, lease)).await?;
    let Acquired::Granted(held) = held else { return Err(Stop::failed("not free at first")) };
    server.kill();
    // The client notices the closed connection before it sends a request.
    sleep(Duration::from_millis(200)).await;
    let request = ask(&name, lease);
    let asking = spawn(second.acquire(&request));
    sleep(Duration::from_millis(200)).await;
    server.restart().await?;
    judge(asking.await?, &held, lease)
}

/// A vote that was requested before a master lost its data, and is requested again after it,
/// does not count.
pub(crate) async fn holds_for_votes_that_are_retried() -> Verdict {
    let masters = RedisMasters::start(3, &Options::new()).await?;
    let [first, second, third] = masters.servers() else { return Err(Stop::failed("not three")) };
    let proxy = Proxy::start(&third.address()).await?;
    proxy.door(Door::Closed).await?;
    let (a, b, c) = (first.address(), second.address(), third.address());
    let options = "dlock.restart_guard=4s&dlock.response_timeout=5s";
    // One holder can't reach the third master.
    let holder = format!("redis+quorum://{a},{b},{}?{options}", proxy.address());
    let holder = connect(holder).await?;
    let other = connect(format!("redis+quorum://{a},{b},{c}?{options}")).await?;
    // The guard of the start is over.
    sleep(Duration::from_millis(5100)).await;
    let (name, lease) = (LockName::new("voted")?, Duration::from_secs(4));
    let held = holder.acquire(&ask(&name, lease)).await?;
    let Acquired::Granted(held) = held else { return Err(Stop::failed("not free at first")) };
    second.pause()?;
    let request = ask(&name, lease).with_queue(Queue::FailIfBusy);
    let asking = spawn(other.acquire(&request));
    sleep(Duration::from_millis(200)).await;
    second.restart().await?;
    judge(asking.await?, &held, lease)
}

/// Refuses a grant to another claim within the lease of the one that was held.
fn judge(answer: Result<Acquired, Error>, held: &Grant, lease: Duration) -> Verdict {
    let age = Clock::Boot.now().since(held.since);
    match answer {
        Ok(Acquired::Granted(grant)) if age < lease => Err(Stop::violation(format!(
            "{grant:?} while {held:?}, of a lease of {lease:?}, is {age:?} old"
        ))),
        _ => Ok(()),
    }
}
