//! Redis by URL, on a server.

use std::time::Duration;

use dlock::LockName;
use dlock_testlab::{
    Stop,
    redis::{Options, RedisServer},
};

#[test]
fn locks_of_one_url_meet_and_a_prefix_keeps_them_apart() {
    let met = async {
        let server = RedisServer::start(&Options::new()).await?;
        let url = server.url();
        let prefixed = format!("{url}?dlock.prefix=shop/&dlock.lease=5s");
        let [one, two] = [dlock::connect(&url).await?, dlock::connect(&url).await?];
        let other = dlock::connect(&prefixed).await?;
        let guard = one.mutex("inventory/42")?.lock().await?;
        assert!(two.mutex("inventory/42")?.try_lock().await?.is_none());
        let apart = other.mutex("inventory/42")?.try_lock().await?;
        assert!(apart.is_some(), "the prefix is lost");
        let name = LockName::new("shop/inventory/42")?;
        let seen = one.inspect(&name).await?;
        assert_eq!(seen.holders.len(), 1, "{seen:?}");
        assert!(seen.holders[0].remaining <= Duration::from_secs(5), "{seen:?}");
        guard.release().await?;
        Ok::<_, Stop>(())
    };
    crate::run("redis", met);
}

#[test]
fn the_right_to_the_keys_of_the_prefix_is_enough() {
    let shared = async {
        let server = RedisServer::start(&Options::new()).await?;
        let line = include_str!("../../../../dlock-redis/src/acl.txt");
        let line = line.replace("~dlock:*", "~dlock:*:shop/* ~dlock:{*}t");
        server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
        let url = format!("redis://dlock:password@{}?dlock.prefix=", server.address());
        let locks = dlock::connect(&format!("{url}shop/")).await?;
        let guard = locks.fair("inventory/42")?.lock().await?;
        guard.release().await?;
        let other = dlock::connect(&format!("{url}bank/")).await;
        let error = other.err().ok_or("another prefix is let in")?.to_string();
        assert!(error.contains("rights"), "{error}");
        Ok::<_, Stop>(())
    };
    crate::run("redis", shared);
}

#[tokio::test]
async fn a_url_without_its_scheme_is_refused_with_the_right_one() {
    for (url, meant) in [
        ("localhost:6379", "redis://HOST:6379"),
        ("redis:6379", "redis://HOST:6379"),
        ("127.0.0.1:6379/0?dlock.lease=5s", "redis://HOST:6379"),
        ("reddis://localhost", "redis:"),
        ("redis+sentinels://localhost/m", "redis+sentinel:"),
    ] {
        let error = dlock::connect(url).await.err().map(|error| error.to_string());
        let meant = format!("did you mean {meant}?");
        assert!(error.as_ref().is_some_and(|error| error.contains(&meant)), "{url}: {error:?}");
    }
}
