//! Applications that share a server, each with rights to its own names only.

use dlock_core::{
    BackendUrl, ConfigIssue, DynBackend, Error, ErrorKind, Level, LockName, Prefixed,
};
use dlock_redis::{REDIS, Redis, RedisConfig};
use dlock_testkit::Heard;
use dlock_testlab::{
    Verdict,
    redis::{Options, RedisMasters, RedisServer},
};

use crate::support::{
    attempt, connect, refused, run, says, start, take, until, works, works_fully,
};

const LINE: &str = include_str!("../../src/acl.txt");
const PLAIN_LINE: &str = include_str!("../../src/acl_plain.txt");
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
        // Names with another prefix are refused.
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

/// The line of the plain form, without one of its words, for a user of these keys.
async fn set_plain_user(server: &RedisServer, keys: &str, without: &str) -> Verdict {
    let line = PLAIN_LINE.replace("~*", keys).replace("resetkeys", "reset on >password");
    let words = line.split_whitespace().filter(|word| *word != without);
    server.command(&words.collect::<Vec<_>>()).await?.ok()?;
    server.flush_scripts().await
}

#[test]
fn the_rights_of_the_plain_form_are_checked() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.plain=true", url_of(&server));
        set_plain_user(&server, "~*", "").await?;
        works(&connect(&url).await?, "a").await?;
        for word in PLAIN_LINE.split_whitespace().skip(6) {
            let Some(command) = word.strip_prefix('+') else { continue };
            if ["select", "info", "scan"].contains(&command) {
                continue;
            }
            set_plain_user(&server, "~*", word).await?;
            let error = refused(&url).await?;
            says(&error, ACCESS, PLAIN_LINE.trim());
            let text = error.to_string().to_lowercase();
            let named = [format!("run {command})"), format!("run the '{command}'")];
            assert!(named.iter().any(|named| text.contains(named)), "{word}: {error}");
        }
        until("nothing is left", async || Ok(server.keys("*").await?.is_empty())).await
    })
}

#[test]
fn keys_of_the_plain_form_are_checked_with_a_prefix() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.plain=true", url_of(&server));
        // The names are not known at the connect.
        set_plain_user(&server, "~shop/*", "").await?;
        works(&connect(&url).await?, "shop/a").await?;
        set_plain_user(&server, "~shop/*", "+pexpire").await?;
        says(&refused(&url).await?, ACCESS, "run PEXPIRE)");
        set_plain_user(&server, "~shop/*", "").await?;
        let with = |prefix| Ok::<_, Error>(RedisConfig::from_url(&url)?.with_prefix(prefix));
        works(&Redis::connect(with("shop/")?).await?, "shop/a").await?;
        let error = Redis::connect(with("bank/")?).await.err().ok_or("let in")?;
        says(&error, ACCESS, "no permission for bank/NAME");
        assert!(error.to_string().contains("~bank/*"), "{error}");
        Ok(())
    })
}

#[test]
fn the_right_to_each_key_of_a_name_is_checked() {
    run(async {
        let (server, _) = start().await?;
        set_user(&server, "~dlock:{*}:*").await?;
        let error = refused(&url_of(&server)).await?;
        says(&error, ACCESS, "no permission for dlock:{0}f:NAME, dlock:{0}q:NAME");
        assert!(!error.to_string().contains("dlock:{0}:NAME"), "{error}");
        let error = shop(&url_of(&server)).await.err().ok_or("let in")?;
        says(&error, ACCESS, "~dlock:*:shop/*");
        Ok(())
    })
}

#[test]
fn a_quorum_works_without_a_master_that_refuses_its_user() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let url = masters.url().replace("//", "//dlock:password@") + "?dlock.restart_guard=0s";
        for master in masters.servers() {
            set_user(master, "~dlock:*").await?;
        }
        let lacks = async |at: usize| {
            let user = ["ACL", "SETUSER", "dlock", "-zadd"];
            masters.servers()[at].command(&user).await?.ok().map(drop)
        };
        lacks(0).await?;
        let (heard, _guard) = Heard::listen();
        let client = connect(&url).await?;
        let warning = heard.text();
        assert!(warning.contains("quorum master unusable"), "{warning}");
        assert!(warning.contains(&masters.servers()[0].address()), "{warning}");
        works(&client, "a").await?;
        let findings = client.examine().await?;
        let wrong: Vec<_> = findings.iter().filter(|f| f.level == Level::Wrong).collect();
        assert_eq!(wrong.len(), 1, "{findings:?}");
        assert!(wrong[0].about == "rights" && wrong[0].found.contains("ZADD"), "{findings:?}");
        assert!(wrong[0].found.contains(&masters.servers()[0].address()), "{findings:?}");
        lacks(1).await?;
        let error = refused(&url).await?;
        says(&error, ACCESS, "run ZADD)");
        assert!(error.to_string().contains(&masters.servers()[0].address()), "{error}");
        Ok(())
    })
}

#[test]
fn disabled_commands_are_named() {
    run(async {
        for (command, named) in
            [("SETRANGE", "(SETRANGE)"), ("EVAL", "EVAL"), ("PEXPIRE", "PEXPIRE")]
        {
            let renamed = format!("rename-command {command} hidden");
            let server = RedisServer::start(&Options::new().with_config(&renamed)).await?;
            for option in ["", "?dlock.plain=true"] {
                if command == "SETRANGE" && !option.is_empty() {
                    works(&connect(&format!("{}{option}", server.url())).await?, "a").await?;
                    continue;
                }
                let error = refused(&format!("{}{option}", server.url())).await?;
                says(&error, ErrorKind::Unsupported, "rename-command");
                assert!(error.to_string().contains(named), "{error}");
            }
        }
        Ok(())
    })
}
