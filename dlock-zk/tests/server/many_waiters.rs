//! A thousand waiters of one name.

use std::{cell::RefCell, time::Duration};

use dlock_core::{AcquireRequest, Acquired, DynBackend};
use dlock_testlab::{Flow, Protocol, Proxy, Stop, Verdict, zookeeper::ZooKeeperServer};
use futures_util::future::{join, join_all, try_join_all};

use crate::support::{connect, exclusive, free, granted, lazy, renew, run, take, until};

/// The number of claims that arrive at once.
const CROWD: usize = 1000;

const LEASE: Duration = Duration::from_secs(120);

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

fn ask() -> AcquireRequest {
    exclusive("a").with_lease(LEASE)
}

/// A server, a client of it, and one behind a proxy. No session and no lease ends on a busy machine.
async fn two_clients() -> Result<(ZooKeeperServer, Proxy, [DynBackend; 2]), Stop> {
    let options = lazy().with_sessions(Duration::from_secs(1), 4 * LEASE);
    let server = ZooKeeperServer::start(&options).await?;
    let proxy = Proxy::start_for(&server.address(), Protocol::ZooKeeper).await?;
    let patient =
        |address| format!("zk://{address}?dlock.session_timeout={}s", 3 * LEASE.as_secs());
    let clients =
        [connect(&patient(server.address())).await?, connect(&patient(proxy.address())).await?];
    Ok((server, proxy, clients))
}

/// Joins the queue, all at once.
async fn join_queue(client: &DynBackend, crowd: &[AcquireRequest]) -> Verdict {
    let answers = join_all(crowd.iter().map(|request| client.acquire(request))).await;
    for answer in answers {
        assert!(matches!(answer?, Acquired::Queued));
    }
    Ok(())
}

/// A crowd that is let in in steps: the release of another lock does not wait behind all of it, and
/// the holder, another client, stays the holder.
#[test]
fn many_acquires_are_sent_in_steps_and_the_session_lives() {
    run(async {
        let (_server, proxy, [holder, client]) = two_clients().await?;
        let (held, other) = (ask(), exclusive("b").with_lease(LEASE));
        take(&holder, &held).await?;
        take(&client, &other).await?;
        let crowd: Vec<_> = (0..LARGE).map(|_| ask()).collect();
        let waiting = async || Ok::<_, Stop>(holder.inspect(&held.name).await?.waiters.len());
        // The server gets all that is sent, and nothing is answered.
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
        let held = ask();
        take(&holder, &held).await?;
        let crowd: Vec<_> = (0..LARGE).map(|_| ask()).collect();
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
        let held = ask();
        take(&holder, &held).await?;
        let waiting: Vec<_> = (0..CROWD).map(|_| ask()).collect();
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
        // All have their places.
        let state = holder.inspect(&held.name).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, CROWD));
        let first = state.waiters[0].claim;
        let first = waiting.iter().find(|request| request.claim == first).ok_or("nobody")?;
        free(&holder, &held).await?;
        granted(&crowd, first).await?;
        Ok(())
    })
}
