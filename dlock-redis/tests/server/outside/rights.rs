//! Applications that share a server, each with rights to its own names only.

use dlock_core::{
    BackendUrl, ConfigIssue, DynBackend, Error, ErrorKind, Level, LockName, Prefixed,
};
use dlock_redis::{REDIS, Redis, RedisConfig};
use dlock_testlab::{Verdict, redis::RedisServer};

use crate::support::{attempt, refused, run, says, start, take, until, works, works_fully};

const LINE: &str = include_str!("../../../src/acl.txt");
const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// The user of the documented line, who has rights to these keys only.
async fn set_user(server: &RedisServer, keys: &str) -> Verdict {
    let line = LINE.replace("~dlock:*", keys);
    server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
    server.flush_scripts().await
}

fn url_of(server: &RedisServer) -> String {
    format!("redis://dlock:password@{}", server.address())
}

/// A client whose names all begin with `shop/`, as `dlock.prefix=shop/` makes one.
async fn shop(url: &str) -> Result<DynBackend, Error> {
    let url: BackendUrl = format!("{url}?dlock.response_timeout=10s").parse()?;
    Ok(Prefixed::new((REDIS.connect)(url.with_prefix("shop/")).await?, "shop/")?)
}

#[test]
fn the_right_to_the_keys_of_a_prefix_is_enough_for_its_names() {
    run(async {
        let (server, admin) = start().await?;
        set_user(&server, "~dlock:*:shop/*").await?;
        let (one, two) = (shop(&url_of(&server)).await?, shop(&url_of(&server)).await?);
        for name in ["a", "42", "x:y"] {
            works_fully(&one, &two, name).await?;
        }
        let held = attempt("listed");
        take(&one, &held).await?;
        assert_eq!(one.list("", 9).await?, [LockName::new("listed")?]);
        assert_eq!(admin.list("", 9).await?, [LockName::new("shop/listed")?]);
        let findings = one.examine().await?;
        assert!(findings.iter().all(|finding| finding.level < Level::Wrong), "{findings:?}");
        // The same without a URL.
        let config = RedisConfig::from_url(&url_of(&server))?.with_prefix("shop/");
        let plain_names = Redis::connect(config).await?;
        works(&plain_names, "shop/b").await?;
        // Another's names stay out of reach.
        let error = plain_names.acquire(&attempt("bank/a")).await.err().ok_or("granted")?;
        says(&error, ACCESS, "rights");
        Ok(())
    })
}

#[test]
fn a_guard_needs_no_more_than_the_keys_of_the_prefix() {
    run(async {
        let (server, admin) = start().await?;
        set_user(&server, "~dlock:*:shop/*").await?;
        let config = format!("{}?dlock.restart_guard=1s", url_of(&server));
        let config = RedisConfig::from_url(&config)?.with_prefix("shop/");
        let _client = Redis::connect(config).await?;
        until("it is noted that the server has run for so long", async || {
            Ok(server.keys("*").await? == ["dlock:{0}?guard:shop/"])
        })
        .await?;
        assert_eq!(admin.list("", 9).await?, []);
        Ok(())
    })
}

#[test]
fn another_prefix_is_refused_at_the_start() {
    run(async {
        let (server, _) = start().await?;
        set_user(&server, "~dlock:*:bank/*").await?;
        let url = url_of(&server);
        says(&shop(&url).await.err().ok_or("let in")?, ACCESS, "rights");
        says(&refused(&url).await?, ACCESS, "rights");
        Ok(())
    })
}
