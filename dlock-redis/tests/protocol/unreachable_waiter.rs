//! Waiters that can't be notified: their clients are dead, or publishing is not permitted.

use dlock_core::{Acquired, DynBackend, Mode};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisCluster, RedisServer},
};
use tokio::time::sleep;

use crate::support::{
    ask, attempt, brief, connect, exclusive, free, granted, millis, queue, run, start, take, until,
    until_listening,
};

/// The number of dead clients, and of claims of each.
const AWAY: (usize, usize) = (4, 50);

/// Many claims of dead clients wait, and keep their positions.
async fn many_that_are_away(server: &RedisServer) -> Verdict {
    for _ in 0..AWAY.0 {
        let unreachable = connect(&server.url()).await?;
        for _ in 0..AWAY.1 {
            queue(&unreachable, &exclusive("a")).await?;
        }
    }
    Ok(())
}

async fn waiters(client: &DynBackend) -> Result<usize, Stop> {
    Ok(client.inspect(&attempt("a").name).await?.waiters.len())
}

#[test]
fn many_dead_waiters_do_not_keep_a_live_one_from_the_lock() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let (held, waiting, second) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&one, &held).await?;
        many_that_are_away(&server).await?;
        queue(&two, &waiting).await?;
        queue(&one, &second).await?;
        until_listening(&server, 2).await?;
        assert_eq!(waiters(&one).await?, AWAY.0 * AWAY.1 + 2);

        free(&one, &held).await?;
        // A new claim does not overtake the waiter.
        let newcomer = connect(&server.url()).await?;
        assert_eq!(newcomer.acquire(&attempt("a")).await?, Acquired::Busy);
        granted(&two, &waiting).await?;
        free(&two, &waiting).await?;
        assert_eq!(newcomer.acquire(&attempt("a")).await?, Acquired::Busy);
        granted(&one, &second).await?;
        free(&one, &second).await?;
        // Claims of unreachable clients are still in the queue.
        assert_eq!(waiters(&one).await?, AWAY.0 * AWAY.1);
        take(&newcomer, &attempt("a")).await.map(|_| ())
    });
}

#[test]
fn a_polling_waiter_is_granted_before_many_dead_ones() {
    run(async {
        let server = start().await?;
        let user = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all", "-subscribe"];
        server.command(&user).await?.ok()?;
        let one = connect(&server.url()).await?;
        let two = connect(&server.url().replace("//", "//joe:p@")).await?;
        let (held, waiting) = (exclusive("a"), brief("a", millis(6000)));
        take(&one, &held).await?;
        many_that_are_away(&server).await?;
        until_listening(&server, 1).await?;
        queue(&two, &waiting).await?;
        free(&one, &held).await?;
        granted(&two, &waiting).await?;
        free(&two, &waiting).await
    });
}

/// The right to publish is taken away from the client that releases.
async fn released_without_the_right(
    one: &DynBackend,
    two: &DynBackend,
    take_away: impl AsyncFn() -> Verdict,
) -> Verdict {
    for name in ["a", "b"] {
        let (held, waiting) = (exclusive(name), brief(name, millis(6000)));
        take(one, &held).await?;
        queue(two, &waiting).await?;
        take_away().await?;
        free(one, &held).await?;
        granted(two, &waiting).await?;
        free(two, &waiting).await?;
        assert!(one.inspect(&held.name).await?.is_free());
    }
    Ok(())
}

const JOE: [&str; 8] = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all"];
const MUTE: [&str; 5] = ["ACL", "SETUSER", "joe", "-publish", "-spublish"];

#[test]
fn a_release_that_may_not_be_published_is_found_by_polling() {
    run(async {
        let server = start().await?;
        server.command(&JOE).await?.ok()?;
        let one = connect(&server.url().replace("//", "//joe:p@")).await?;
        let two = connect(&server.url()).await?;
        let mute = async || server.command(&MUTE).await?.ok().map(|_| ());
        released_without_the_right(&one, &two, mute).await
    });
}

#[test]
fn a_cluster_waiter_polls_if_a_release_cannot_be_published() {
    run(async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        let everywhere = async |command: &[&str]| -> Verdict {
            for node in cluster.nodes() {
                node.command(command).await?.ok()?;
            }
            Ok(())
        };
        everywhere(&JOE).await?;
        let one = connect(&cluster.url().replace("//", "//joe:p@")).await?;
        let two = connect(&cluster.url()).await?;
        released_without_the_right(&one, &two, async || everywhere(&MUTE).await).await
    });
}

/// A later claim must not hold one of the locks while the unreachable client holds the other.
#[test]
fn a_multi_lock_of_a_dead_client_is_not_skipped() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let held = exclusive("a");
        take(&one, &held).await?;
        let unreachable = connect(&server.url()).await?;
        let both = [exclusive("a"), exclusive("b")];
        let entered = unreachable.acquire_all(&both).ok_or("it takes two at once")?.await?;
        assert!(matches!(entered[..], [Acquired::Queued, Acquired::Granted(_)]));
        queue(&two, &exclusive("a")).await?;
        until_listening(&server, 3).await?;
        drop(unreachable);
        until_listening(&server, 2).await?;
        free(&one, &held).await?;
        let state = one.inspect(&held.name).await?;
        assert_eq!(state.holders[0].claim, both[0].claim);
        assert_eq!(state.waiters.len(), 1);
        Ok(())
    });
}

/// The keys of locks. The streams of tokens stay.
async fn keys(server: &RedisServer) -> Result<Vec<String>, Stop> {
    let keys = server.keys("*").await?;
    Ok(keys.into_iter().filter(|key| !key.ends_with("}t")).collect())
}

async fn every_key_has_an_end(server: &RedisServer) -> Verdict {
    for key in keys(server).await? {
        let left = server.command(&["PTTL", &key]).await?.int()?;
        // A key that has expired meanwhile returns another value.
        assert_ne!(left, -1, "{key} has no end");
    }
    Ok(())
}

async fn nothing_is_left(server: &RedisServer) -> Verdict {
    let empty = until("no key is left", async || {
        every_key_has_an_end(server).await?;
        Ok(keys(server).await?.is_empty())
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
    let url = server.url();
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
