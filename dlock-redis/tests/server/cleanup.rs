//! The keys that remain on the server, and where they are.

use std::time::Duration;

use dlock_core::{DynBackend, Mode};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisServer},
};

use crate::support::{
    LEASE, ask, attempt, connect, exclusive, free, queue, renew, run, start, take, until, works,
    works_fully,
};

const NAMES: usize = 300;

/// Long enough for a renewal.
const SHORT: Duration = Duration::from_secs(5);

/// The keys of locks. The streams of tokens stay.
async fn keys(server: &RedisServer) -> Result<Vec<String>, Stop> {
    let keys = server.keys("*").await?;
    Ok(keys.into_iter().filter(|key| !key.ends_with("}t")).collect())
}

async fn is_empty(server: &RedisServer) -> Verdict {
    let empty = until("no key is left", async || Ok(keys(server).await?.is_empty())).await;
    for key in keys(server).await? {
        let left = server.command(&["PTTL", &key]).await?.int()?;
        println!("{key} ends in {left} ms");
    }
    empty
}

/// Uses many names once, in all ways that leave different keys behind.
async fn use_once(client: &DynBackend) -> Verdict {
    for number in 0..NAMES {
        let name = number.to_string();
        match number % 4 {
            0 => {
                let held = exclusive(&name).with_lease(SHORT);
                take(client, &held).await?;
                renew(client, &held).await?;
                free(client, &held).await?;
            }
            1 => {
                let (held, waiting) = (exclusive(&name), exclusive(&name));
                take(client, &held).await?;
                queue(client, &waiting).await?;
                free(client, &waiting).await?;
                free(client, &held).await?;
            }
            2 => {
                let held = [ask(&name, Mode::Shared), ask(&name, Mode::Shared)];
                for reader in &held {
                    take(client, reader).await?;
                }
                client.acquire(&attempt(&name)).await?;
                for reader in &held {
                    free(client, reader).await?;
                }
            }
            _ => {
                let held = ask(&name, Mode::permits(2, 5)?);
                take(client, &held).await?;
                free(client, &held).await?;
            }
        }
    }
    Ok(())
}

#[test]
fn names_that_are_not_in_use_keep_no_key() {
    run(async {
        let (server, client) = start().await?;
        use_once(&client).await?;
        assert!(keys(&server).await?.is_empty(), "{:?}", keys(&server).await?);
        // Each bucket has one stream of about a hundred entries.
        let streams = server.keys("*").await?;
        assert!(streams.len() <= 64, "{streams:?}");
        for _ in 0..3 {
            use_once(&client).await?;
        }
        for stream in streams {
            let entries = server.command(&["XLEN", &stream]).await?.int()?;
            assert!(entries <= 300, "{stream}: {entries}");
        }
        let other = connect(&server.url()).await?;
        works_fully(&client, &other, "a").await
    })
}

#[test]
fn dead_clients_leave_nothing_after_their_leases() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let client = connect(&server.url()).await?;
        let lease = Duration::from_millis(200);
        for (name, mode) in
            [("a", Mode::Exclusive), ("b", Mode::Shared), ("c", Mode::permits(2, 3)?)]
        {
            for _ in 0..3 {
                let request = ask(name, mode).with_lease(lease);
                client.acquire(&request).await?;
            }
        }
        // The client polls for its waiting claims until the server has no listener.
        drop(client);
        // The records of waiters and readers stay for a while.
        let keys = keys(&server).await?;
        assert!(keys.len() < 9, "{keys:?}");
        for key in keys {
            let left = server.command(&["PTTL", &key]).await?.int()?;
            assert!((1..=21_000).contains(&left), "{key} ends in {left} ms");
            server.command(&["PEXPIRE", &key, "200"]).await?.ok()?;
        }
        is_empty(&server).await
    })
}

#[test]
fn every_key_has_an_end() {
    run(async {
        let (server, client) = start().await?;
        // Twenty seconds, a lease, and a second.
        let longest = 21_000 + i64::try_from(LEASE.as_millis())?;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 3)?] {
            let held = ask("a", mode);
            take(&client, &held).await?;
            let waiting = ask("a", if mode == Mode::Shared { Mode::Exclusive } else { mode });
            queue(&client, &waiting).await?;
            for key in keys(&server).await? {
                let left = server.command(&["PTTL", &key]).await?.int()?;
                assert!((1..=longest).contains(&left), "{key}: {left}");
            }
            free(&client, &waiting).await?;
            free(&client, &held).await?;
        }
        Ok(())
    })
}

#[test]
fn databases_of_one_server_are_separate() {
    run(async {
        let (server, zero) = start().await?;
        let three = connect(&format!("{}/3", server.url())).await?;
        let (one, other) = (exclusive("a"), exclusive("a"));
        take(&zero, &one).await?;
        take(&three, &other).await?;
        let third = connect(&format!("{}/3", server.url())).await?;
        let waiting = exclusive("a");
        queue(&third, &waiting).await?;
        free(&zero, &one).await?;
        assert_eq!(third.inspect(&waiting.name).await?.waiters.len(), 1);
        free(&three, &other).await?;
        crate::support::granted(&third, &waiting).await?;
        assert_ne!(zero.store(), three.store());
        // After a lost connection, too.
        server.kill_clients().await?;
        assert_eq!(third.inspect(&waiting.name).await?.holders.len(), 1);
        assert!(zero.inspect(&waiting.name).await?.is_free());
        free(&third, &waiting).await
    })
}

#[test]
fn a_server_is_reached_by_its_socket() {
    run(async {
        let server = RedisServer::start(&Options::new().with_socket()).await?;
        let socket = server.socket().ok_or("no socket")?;
        let url = format!("redis+unix://{}", socket.display());
        let (one, two) = (connect(&url).await?, connect(&server.url()).await?);
        works_fully(&one, &two, "a").await?;
        assert_eq!(one.store(), url);
        let user = ["ACL", "SETUSER", "joe", "on", ">p/w", "~*", "&*", "+@all"];
        server.command(&user).await?.ok()?;
        // A path with characters that have a meaning in a URL.
        let odd = server.directory().join("a b?c#d%41.sock");
        std::os::unix::fs::symlink(&socket, &odd)?;
        let odd = odd.display().to_string().replace('%', "%25").replace('?', "%3F");
        let joe = connect(&format!("redis+unix://joe:p%2Fw@{odd}")).await?;
        works_fully(&joe, &two, "a").await?;
        let third = connect(&format!("{url}?db=3&user=joe&pass=p%2Fw")).await?;
        let same = connect(&format!("{}/3", server.url())).await?;
        works_fully(&third, &same, "a").await?;
        assert_eq!(third.store(), format!("{url}?db=3"));
        let plain = connect(&format!("{url}?dlock.plain=true")).await?;
        works(&plain, "p").await
    })
}

#[test]
fn a_server_is_reached_by_its_ipv6_address() {
    run(async {
        let options = Options::new().with_config("bind 127.0.0.1 -::1");
        let server = RedisServer::start(&options).await?;
        if tokio::net::TcpStream::connect(("::1", server.port())).await.is_err() {
            println!("ignored: this machine has no IPv6");
            return Ok(());
        }
        let client = connect(&format!("redis://[::1]:{}", server.port())).await?;
        works(&client, "a").await
    })
}
