//! The required rights of a user: exactly those of the ACL line in the documentation, also with a
//! prefix of names.

use std::time::Duration;

use dlock_core::{
    BackendUrl, ConfigIssue, DynBackend, Error, ErrorKind, Level, LockName, Mode, Prefixed, WakeUp,
};
use dlock_redis::{REDIS, Redis, RedisConfig};
use dlock_testkit::Heard;
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisCluster, RedisMasters, RedisServer},
    rights::claims_end_after_a_refusal,
};

use crate::support::{
    ask, attempt, connect, exclusive, free, granted, queue, refused, run, says, start, take, until,
    works, works_fully,
};

/// The line that errors and the documentation show: `ACL SETUSER dlock on >password ...`.
const LINE: &str = include_str!("../../src/acl.txt");
const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// The rights that only clusters and durability need.
const SPECIAL: [&str; 5] = ["+cluster|slots", "+asking", "+ssubscribe", "+spublish", "+wait"];
/// The rights without which the locks still work.
const OPTIONAL: [&str; 4] = ["&dlock:*", "+subscribe", "+info", "+scan"];

fn words() -> impl Iterator<Item = &'static str> {
    LINE.split_whitespace()
}

/// Returns the documented line as a command, without this word.
fn line_without(word: &str) -> Vec<&'static str> {
    let user = words().take(3).chain(["reset"]);
    user.chain(words().skip(3)).filter(|other| *other != word).collect()
}

async fn set_user(server: &RedisServer, without: &str) -> Verdict {
    server.command(&line_without(without)).await?.ok()?;
    // With cached scripts, the client would not need the right to EVAL.
    server.flush_scripts().await
}

fn url_of(server: &RedisServer) -> String {
    format!("redis://dlock:password@{}", server.address())
}

#[test]
fn the_acl_line_is_enough_for_all_operations() {
    run(async {
        let (server, _) = start().await?;
        set_user(&server, "").await?;
        let url = url_of(&server);
        let (one, two) = (connect(&format!("{url}/3")).await?, connect(&format!("{url}/3")).await?);
        assert_eq!(one.guarantees().wake_up, WakeUp::Push);
        server.flush_scripts().await?;
        works_fully(&one, &two, "a").await?;
        let replica = format!("replicaof 127.0.0.1 {}", server.port());
        let _replica = RedisServer::start(&Options::new().with_config(&replica)).await?;
        crate::support::until("the replica is in sync", async || {
            Ok(server.info("replication").await?.contains("state=online"))
        })
        .await?;
        let durable = connect(&format!("{url}/3?dlock.durability=1")).await?;
        works_fully(&durable, &one, "b").await
    })
}

#[test]
fn the_acl_line_is_enough_in_a_cluster() {
    run(async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        for node in cluster.nodes() {
            set_user(node, "").await?;
        }
        let url = cluster.url().replace("//", "//dlock:password@");
        let (one, two) = (connect(&url).await?, connect(&url).await?);
        assert_eq!(one.guarantees().wake_up, WakeUp::Push);
        for name in ["a", "b", "c"] {
            works_fully(&one, &two, name).await?;
        }
        Ok(())
    })
}

#[test]
fn each_missing_right_of_the_acl_line_is_reported_at_start() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}/1", url_of(&server));
        let needed = words().skip(5).filter(|word| {
            word.starts_with(['+', '~', '&']) && !SPECIAL.contains(word) && !OPTIONAL.contains(word)
        });
        for word in needed {
            set_user(&server, word).await?;
            let error = match refused(&url).await {
                Ok(error) => error,
                Err(stop) => return Err(Stop::failed(format!("{word} is not needed: {stop:?}"))),
            };
            says(&error, ACCESS, LINE.trim());
            if let Some(command) = word.strip_prefix('+') {
                let text = error.to_string().to_lowercase();
                let named = [format!("run {command})"), format!("run the '{command}'")];
                assert!(named.iter().any(|named| text.contains(named)), "{word}: {error}");
            }
            assert!(server.keys("*").await?.is_empty());
        }
        Ok(())
    })
}

#[test]
fn a_missing_eval_right_is_reported_although_scripts_are_cached() {
    run(async {
        let (server, client) = start().await?;
        set_user(&server, "+eval").await?;
        works_fully(&client, &connect(&server.url()).await?, "a").await?;
        says(&refused(&url_of(&server)).await?, ACCESS, LINE.trim());
        Ok(())
    })
}

#[test]
fn missing_cluster_rights_are_reported_at_start() {
    run(async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        let url = cluster.url().replace("//", "//dlock:password@");
        for word in ["+cluster|slots", "+spublish", "+asking"] {
            for node in cluster.nodes() {
                set_user(node, word).await?;
            }
            says(&refused(&url).await?, ACCESS, LINE.trim());
        }
        // Each master has its own users.
        for (number, node) in cluster.nodes().iter().enumerate() {
            set_user(node, if number == 1 { "+zadd" } else { "" }).await?;
        }
        says(&refused(&url).await?, ACCESS, "run ZADD)");
        // Without messages, the waiters poll.
        for node in cluster.nodes() {
            set_user(node, "+ssubscribe").await?;
        }
        let (one, two) = (connect(&url).await?, connect(&url).await?);
        assert_eq!(one.guarantees().wake_up, WakeUp::Poll);
        let held = exclusive("a");
        take(&one, &held).await?;
        let waiting = exclusive("a").with_lease(Duration::from_millis(2400));
        queue(&two, &waiting).await?;
        free(&one, &held).await?;
        granted(&two, &waiting).await?;
        free(&two, &waiting).await
    })
}

#[test]
fn a_missing_wait_right_is_reported_at_start() {
    run(async {
        let (server, _) = start().await?;
        set_user(&server, "+wait").await?;
        let url = format!("{}?dlock.durability=1", url_of(&server));
        let error = refused(&url).await?;
        says(&error, ACCESS, LINE.trim());
        assert!(error.to_string().contains("'wait'"), "{error}");
        connect(&url_of(&server)).await?;
        Ok(())
    })
}

#[test]
fn without_the_channel_right_waiters_poll() {
    run(async {
        let (server, _) = start().await?;
        for word in ["+subscribe", "&dlock:*"] {
            set_user(&server, word).await?;
            let url = url_of(&server);
            let (one, two) = (connect(&url).await?, connect(&server.url()).await?);
            assert_eq!(one.guarantees().wake_up, WakeUp::Poll, "{word}");
            // A polling waiter behind a notified one, and the reverse.
            for (first, second) in [(&one, &two), (&two, &one), (&one, &one)] {
                // The waiter polls every third of its lease.
                let lease = Duration::from_millis(2400);
                let (held, waiting) = (exclusive("a"), exclusive("a").with_lease(lease));
                take(first, &held).await?;
                queue(second, &waiting).await?;
                free(first, &held).await?;
                granted(second, &waiting).await?;
                free(second, &waiting).await?;
            }
            // Shared and sequential claims are not affected.
            for mode in [Mode::Shared, Mode::permits(1, 2)?] {
                let both = [ask("b", mode), ask("b", mode)];
                take(&one, &both[0]).await?;
                take(&two, &both[1]).await?;
                free(&one, &both[0]).await?;
                free(&two, &both[1]).await?;
            }
        }
        Ok(())
    })
}

#[test]
fn without_the_info_right_a_server_is_used_unchecked() {
    run(async {
        let (server, _) = start().await?;
        set_user(&server, "+info").await?;
        let url = url_of(&server);
        works_fully(&connect(&url).await?, &connect(&url).await?, "a").await
    })
}

#[test]
fn claims_whose_release_is_refused_end_with_their_leases() {
    run(async {
        let (server, other) = start().await?;
        set_user(&server, "").await?;
        let client = connect(&url_of(&server)).await?;
        claims_end_after_a_refusal(&client, &other, Duration::from_secs(3), async |on| match on {
            true => set_user(&server, "").await,
            false => server.command(&["ACL", "SETUSER", "dlock", "-@all"]).await?.ok().map(drop),
        })
        .await
    })
}

const PLAIN_LINE: &str = include_str!("../../src/acl_plain.txt");

/// The user of the documented line, who has rights to these keys only.
async fn set_user_of(server: &RedisServer, keys: &str) -> Verdict {
    let line = LINE.replace("~dlock:*", keys);
    server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
    server.flush_scripts().await
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
        set_user_of(&server, "~dlock:*:shop/* ~dlock:{*}t").await?;
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
        // The same, without a URL.
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
        set_user_of(&server, "~dlock:*:shop/* ~dlock:{*}t").await?;
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
        set_user_of(&server, "~dlock:*:bank/* ~dlock:{*}t").await?;
        let url = url_of(&server);
        says(&shop(&url).await.err().ok_or("let in")?, ACCESS, "rights");
        says(&refused(&url).await?, ACCESS, "rights");
        Ok(())
    })
}

/// Returns the line of the plain form without this word, for a user with rights to these keys.
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
        // At the connect, the names are not known yet.
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
        set_user_of(&server, "~dlock:{*}:*").await?;
        let error = refused(&url_of(&server)).await?;
        says(&error, ACCESS, "no permission for dlock:{0}t, dlock:{0}q:NAME");
        assert!(!error.to_string().contains("dlock:{0}:NAME"), "{error}");
        let error = shop(&url_of(&server)).await.err().ok_or("let in")?;
        says(&error, ACCESS, "~dlock:*:shop/* ~dlock:{*}t ");
        Ok(())
    })
}

#[test]
fn a_quorum_works_without_a_master_that_refuses_its_user() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let url = masters.url().replace("//", "//dlock:password@") + "?dlock.restart_guard=0s";
        for master in masters.servers() {
            set_user_of(master, "~dlock:*").await?;
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
