//! A thousand waiters of one name, and waiters whose blocker changes between two reads.

use std::{cell::RefCell, time::Duration};

use dlock_core::{AcquireRequest, Acquired, DynBackend, Mode, Renewal, Renewed};
use dlock_testlab::{Flow, Protocol, Proxy, Stop, Verdict, zookeeper::ZooKeeperServer};
use futures_util::future::{join, join_all, try_join_all};

use crate::{
    shared::start,
    support::{
        LEASE, ask, connect, exclusive, free, granted, lazy, queue, renew, run, take, until,
    },
};

/// The number of claims that arrive at once.
const CROWD: usize = 1000;

const LONG_LEASE: Duration = Duration::from_secs(120);

/// The smallest number of bytes of a claim in a list.
const LISTED: usize = 54;

/// More requests than a server answers in time.
const LARGE: usize = 2500;
/// The number of requests of each kind that are under way at a time.
const WINDOW: usize = 256;
/// The number of claims that hold the lock one after the other.
const TURNS: usize = 40;

/// The number of bytes of the lists if each waiter reads its own when it joins.
fn list_for_each(crowd: usize) -> u64 {
    u64::try_from(crowd * crowd / 2 * LISTED).unwrap_or(u64::MAX)
}

fn ask_for_long() -> AcquireRequest {
    exclusive("a").with_lease(LONG_LEASE)
}

/// A server, a client of it, and one behind a proxy. No session and no lease ends on a busy machine.
async fn two_clients() -> Result<(ZooKeeperServer, Proxy, [DynBackend; 2]), Stop> {
    let options = lazy().with_sessions(Duration::from_secs(1), 4 * LONG_LEASE);
    let server = ZooKeeperServer::start(&options).await?;
    let proxy = Proxy::start_for(&server.address(), Protocol::ZooKeeper).await?;
    let patient =
        |address| format!("zk://{address}?dlock.session_timeout={}s", 3 * LONG_LEASE.as_secs());
    let clients =
        [connect(&patient(server.address())).await?, connect(&patient(proxy.address())).await?];
    Ok((server, proxy, clients))
}

/// Joins the queue with all claims at once.
async fn join_queue(client: &DynBackend, crowd: &[AcquireRequest]) -> Verdict {
    let answers = join_all(crowd.iter().map(|request| client.acquire(request))).await;
    for answer in answers {
        assert!(matches!(answer?, Acquired::Queued));
    }
    Ok(())
}

/// Many acquires are sent in groups. The release of another lock does not wait for all of them, and
/// the holder, another client, keeps its lock.
#[test]
fn many_acquires_are_sent_in_steps_and_the_session_lives() {
    run(async {
        let (_server, proxy, [holder, client]) = two_clients().await?;
        let (held, other) = (ask_for_long(), exclusive("b").with_lease(LONG_LEASE));
        take(&holder, &held).await?;
        take(&client, &other).await?;
        let crowd: Vec<_> = (0..LARGE).map(|_| ask_for_long()).collect();
        let waiting = async || Ok::<_, Stop>(holder.inspect(&held.name).await?.waiters.len());
        // The server gets all requests, and the client gets no answer.
        proxy.replies(Flow::Hold);
        let watched = async {
            until("the first step", async || Ok(waiting().await? >= WINDOW)).await?;
            let freed = async {
                until("the release comes through", async || {
                    Ok(holder.inspect(&other.name).await?.is_free())
                })
                .await?;
                assert_eq!(waiting().await?, WINDOW, "of {LARGE}");
                renew(&holder, &held).await?;
                proxy.pass().await
            };
            let (freed, watched) = join(free(&client, &other), freed).await;
            watched?;
            freed
        };
        let (joined, watched) = join(join_queue(&client, &crowd), watched).await;
        watched?;
        joined?;
        let (bytes, for_each) = (proxy.reply_bytes(), list_for_each(LARGE));
        assert!(bytes < for_each / 8, "{bytes} bytes were sent, and a list for each is {for_each}");
        assert_eq!(waiting().await?, LARGE);
        renew(&holder, &held).await?;
        free(&holder, &held).await
    })
}

/// Waiters behind claims of their own client need no list to see that they are next.
#[test]
fn many_waiters_do_not_list_the_queue_for_each_hand_off() {
    run(async {
        let (_server, proxy, [holder, client]) = two_clients().await?;
        let held = ask_for_long();
        take(&holder, &held).await?;
        let crowd: Vec<_> = (0..LARGE).map(|_| ask_for_long()).collect();
        join_queue(&client, &crowd).await?;
        let order = holder.inspect(&held.name).await?.waiters;
        let find = |claim| crowd.iter().find(|request| request.claim == claim);
        let first: Vec<_> = order.iter().filter_map(|one| find(one.claim)).take(TURNS).collect();
        assert_eq!(first.len(), TURNS);
        let (bytes, answers) = (proxy.reply_bytes(), proxy.answers());
        let had = RefCell::new(Vec::new());
        let turns = try_join_all(first.iter().map(async |request| -> Verdict {
            granted(&client, request).await?;
            had.borrow_mut().push(request.claim);
            free(&client, request).await
        }));
        let begun = async {
            // Each watches its own node and the one before it.
            let watched = answers + 2 * u64::try_from(TURNS).unwrap_or(u64::MAX);
            until("all watch", async || Ok(proxy.answers() >= watched)).await?;
            free(&holder, &held).await
        };
        let (turns, begun) = join(turns, begun).await;
        begun?;
        turns?;
        let in_order: Vec<_> = order.iter().map(|one| one.claim).take(TURNS).collect();
        assert_eq!(had.into_inner(), in_order);
        let bytes = proxy.reply_bytes() - bytes;
        let lists = u64::try_from(LARGE * LISTED * TURNS).unwrap_or(u64::MAX);
        assert!(bytes < lists / 8, "{bytes} bytes were sent, and {TURNS} lists are {lists}");
        Ok(())
    })
}

/// Each acquire has to read the nodes before its own.
#[test]
fn many_acquires_of_one_client_share_lists_of_the_queue() {
    run(async {
        let (_server, proxy, [holder, crowd]) = two_clients().await?;
        let held = ask_for_long();
        take(&holder, &held).await?;
        let waiting: Vec<_> = (0..CROWD).map(|_| ask_for_long()).collect();
        let before = proxy.reply_bytes();
        try_join_all(waiting.iter().map(async |request| -> Verdict {
            match crowd.acquire(request).await? {
                Acquired::Queued => Ok(()),
                other => Err(Stop::failed(format!("{other:?}"))),
            }
        }))
        .await?;
        let bytes = proxy.reply_bytes() - before;
        let for_each = list_for_each(CROWD);
        assert!(bytes < for_each / 4, "{bytes} bytes were sent, and a list for each is {for_each}");
        // All claims are in the queue.
        let state = holder.inspect(&held.name).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, CROWD));
        let first = state.waiters[0].claim;
        let first = waiting.iter().find(|request| request.claim == first).ok_or("nobody")?;
        free(&holder, &held).await?;
        granted(&crowd, first).await?;
        Ok(())
    })
}

/// A reader sees a writer before it that is not the first. When it begins to wait for that writer,
/// the writer holds the lock and has been downgraded to a reader.
#[test]
fn a_reader_is_granted_with_a_downgraded_later_writer() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let [first, writer] = [(); 2].map(|()| exclusive("late"));
        let reader = ask("late", Mode::Shared);
        take(&client, &first).await?;
        queue(&client, &writer).await?;
        queue(&other, &reader).await?;
        free(&client, &first).await?;
        granted(&client, &writer).await?;
        let weaker = Renewal::new(writer.as_claim(), Mode::Shared, LEASE);
        if client.renew(&[weaker]).await? != [Renewed::Kept] {
            return Err(Stop::failed("the downgrade is refused"));
        }
        granted(&other, &reader).await?;
        free(&other, &reader).await?;
        free(&client, &writer).await
    });
}

/// Permits that are granted without a wait, to a claim that has waiters behind it.
#[test]
fn a_waiter_behind_granted_permits_is_granted() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let all = ask("permits", Mode::permits(3, 3)?);
        let [next, last] =
            [ask("permits", Mode::permits(1, 3)?), ask("permits", Mode::permits(1, 3)?)];
        take(&client, &all).await?;
        queue(&client, &next).await?;
        queue(&other, &last).await?;
        let waiting = granted(&other, &last);
        let passing = async {
            free(&client, &all).await?;
            // The renewal tells the client that it holds the permits, without a wait.
            renew(&client, &next).await
        };
        let (grant, passed): (_, Verdict) = tokio::join!(waiting, passing);
        passed?;
        grant?;
        free(&other, &last).await?;
        free(&client, &next).await
    });
}
