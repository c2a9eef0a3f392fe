//! A server without free memory: it grants nothing new, and existing claims are served to their end.

use std::time::Duration;

use dlock_core::{Certainty, ErrorKind, Mode};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};

use crate::support::{
    ask, attempt, connect, exclusive, free, granted, queue, refused, renew, run, says, start, take,
    works,
};

const REMEDY: &str = "out of memory (maxmemory): add memory, or delete keys";

/// From now on there is no room for anything.
async fn fill(server: &RedisServer) -> Verdict {
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await?.ok()?;
    Ok(())
}

async fn make_room(server: &RedisServer) -> Verdict {
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await?.ok()?;
    Ok(())
}

#[test]
fn a_full_server_grants_nothing_and_stores_nothing() {
    run(async {
        let (server, client) = start().await?;
        works(&client, "used").await?;
        fill(&server).await?;
        let keys = server.keys("*").await?;
        for request in [
            exclusive("a"),
            attempt("a"),
            exclusive("used"),
            ask("a", Mode::Shared),
            ask("a", Mode::permits(2, 3)?),
        ] {
            match client.acquire(&request).await {
                Ok(answer) => return Err(Stop::failed(format!("{answer:?}"))),
                Err(error) => {
                    says(&error, ErrorKind::Unavailable, REMEDY);
                    assert!(error.is_transient());
                    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
                }
            }
            assert_eq!(server.keys("*").await?, keys, "{request:?}");
        }
        let both = [exclusive("a"), exclusive("b")];
        let answer = client.acquire_all(&both).ok_or("it can't take two at once")?;
        says(&answer.await.err().ok_or("it takes both")?, ErrorKind::Unavailable, REMEDY);
        assert_eq!(server.keys("*").await?, keys);
        make_room(&server).await?;
        works(&client, "a").await
    })
}

#[test]
fn held_locks_are_renewed_and_released_on_a_full_server() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        fill(&server).await?;
        renew(&client, &held).await?;
        assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
        free(&client, &held).await?;
        assert!(client.inspect(&held.name).await?.is_free());
        Ok(())
    })
}

#[test]
fn readers_and_permits_are_renewed_on_a_full_server() {
    run(async {
        let (server, client) = start().await?;
        let held = [ask("a", Mode::Shared), ask("b", Mode::permits(2, 3)?)];
        for request in &held {
            take(&client, request).await?;
        }
        fill(&server).await?;
        for request in &held {
            renew(&client, request).await?;
        }
        Ok(())
    })
}

#[test]
fn a_full_server_hands_off_to_waiters() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let (writer, readers) = (exclusive("a"), [ask("a", Mode::Shared), ask("a", Mode::Shared)]);
        let last = exclusive("a");
        take(&client, &writer).await?;
        for reader in &readers {
            queue(&other, reader).await?;
        }
        queue(&client, &last).await?;
        fill(&server).await?;
        free(&client, &writer).await?;
        for reader in &readers {
            granted(&other, reader).await?;
            free(&other, reader).await?;
        }
        granted(&client, &last).await?;
        free(&client, &last).await?;
        assert!(client.inspect(&last.name).await?.is_free());
        Ok(())
    })
}

#[test]
fn a_waiter_on_a_full_server_keeps_its_position() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let held = exclusive("a");
        // It polls a few times meanwhile.
        let lease = Duration::from_secs(2);
        let waiting = exclusive("a").with_lease(lease);
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        fill(&server).await?;
        let release = async {
            tokio::time::sleep(lease * 3 / 2).await;
            free(&client, &held).await
        };
        let (grant, released) = tokio::join!(granted(&other, &waiting), release);
        released?;
        grant?;
        free(&other, &waiting).await
    })
}

#[test]
fn a_full_server_refuses_a_new_client_with_a_remedy() {
    run(async {
        let (server, _client) = start().await?;
        fill(&server).await?;
        says(&refused(&server.url()).await?, ErrorKind::Unavailable, REMEDY);
        make_room(&server).await?;
        works(&connect(&server.url()).await?, "a").await
    })
}
