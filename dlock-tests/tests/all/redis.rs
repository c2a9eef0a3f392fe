//! Redis by URL, on a server.

use std::time::Duration;

use dlock::LockName;
use dlock_testlab::{
    Stop, judge,
    redis::{Options, RedisServer},
};

#[tokio::test]
async fn locks_of_one_url_meet_and_a_prefix_keeps_them_apart() {
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
    judge("redis", met.await);
}
