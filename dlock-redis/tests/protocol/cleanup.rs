//! The keys that remain of a lock whose waiter has died.

use dlock_core::Mode;
use dlock_testlab::{Verdict, redis::RedisServer};
use tokio::time::sleep;

use crate::support::{ask, connect, free, millis, queue, run, start, take, until, until_listening};

async fn every_key_has_an_end(server: &RedisServer) -> Verdict {
    for key in server.keys("*").await? {
        let left = server.command(&["PTTL", &key]).await?.int()?;
        // One that has ended meanwhile is none.
        assert_ne!(left, -1, "{key} has no end");
    }
    Ok(())
}

async fn nothing_is_left(server: &RedisServer) -> Verdict {
    let empty = until("no key is left", async || {
        every_key_has_an_end(server).await?;
        Ok(server.command(&["DBSIZE"]).await?.int()? == 0)
    });
    let empty = empty.await;
    if empty.is_err() {
        println!("{:?}", server.keys("*").await?);
    }
    empty
}

/// A holder releases after the waiter's client has died: the waiter keeps its position until its
/// lease ends.
async fn a_waiter_dies(held: Mode, waits: Mode) -> Verdict {
    let server = start().await?;
    let url = format!("{}?dlock.retention=1s", server.url());
    let (one, two) = (connect(&url).await?, connect(&url).await?);
    let lease = millis(1000);
    let held = ask("a", held).with_lease(lease);
    let waiting = ask("a", waits).with_lease(lease);
    take(&one, &held).await?;
    queue(&two, &waiting).await?;
    every_key_has_an_end(&server).await?;
    drop(two);
    until_listening(&server, 1).await?;
    free(&one, &held).await?;
    every_key_has_an_end(&server).await?;
    sleep(millis(50)).await;
    every_key_has_an_end(&server).await?;
    drop(one);
    nothing_is_left(&server).await
}

#[test]
fn a_waiter_that_dies_before_the_release_leaves_nothing() {
    run(a_waiter_dies(Mode::Exclusive, Mode::Exclusive));
}

#[test]
fn a_reader_that_dies_before_the_release_leaves_nothing() {
    run(a_waiter_dies(Mode::Exclusive, Mode::Shared));
}

#[test]
fn a_writer_that_dies_before_a_readers_release_leaves_nothing() {
    run(a_waiter_dies(Mode::Shared, Mode::Exclusive));
}
