//! The required rights of a user: exactly those of the ACL line in the documentation.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind, Mode, WakeUp};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisCluster, RedisServer},
    rights::claims_end_after_a_refusal,
};

use crate::support::{
    ask, connect, exclusive, free, granted, queue, refused, run, says, start, take, works_fully,
};

/// The line that errors and the documentation show: `ACL SETUSER dlock on >password ...`.
const LINE: &str = include_str!("../../src/acl.txt");
const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// What is for clusters only, and for durability.
const SPECIAL: [&str; 5] = ["+cluster|slots", "+asking", "+ssubscribe", "+spublish", "+wait"];
/// What is not for the locks themselves.
const OPTIONAL: [&str; 4] = ["&dlock:*", "+subscribe", "+info", "+scan"];

fn words() -> impl Iterator<Item = &'static str> {
    LINE.split_whitespace()
}

/// The line as a command, without one of its words.
fn line_without(word: &str) -> Vec<&'static str> {
    let user = words().take(3).chain(["reset"]);
    user.chain(words().skip(3)).filter(|other| *other != word).collect()
}

async fn set_user(server: &RedisServer, without: &str) -> Verdict {
    server.command(&line_without(without)).await?.ok()?;
    // A user without the right to EVAL would not notice otherwise.
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
        // Without messages they poll.
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
                // It polls every third of its lease.
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
