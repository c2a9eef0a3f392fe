//! Requests that reach the server after their client has moved on, and members whose state is older
//! than the claims of a session.

use std::time::Duration;

use dlock_core::{Acquired, DynBackend, ErrorKind, Queue};
use dlock_testlab::{
    Door, Flow, Protocol, Proxy, Stop,
    etcd::{Ensemble, Options},
};
use futures_util::future::try_join_all;
use tokio::time::{sleep, timeout};

use crate::support::{SOON, connect, exclusive, free, key_of, run, server, take, until, works};

/// So many requests that the server proposes some of them before it notices the end of the
/// connection.
const MANY: usize = 200;

/// More proposals than the votes of a session make in the same time.
const PROPOSED: f64 = 20.0;

#[test]
fn creations_that_arrive_late_create_no_keys() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("etcd://{}?dlock.session_timeout=15s", proxy.address());
        let client = connect(&url).await?;
        works(&client, "a").await?;
        let mut queues = vec![Queue::Enqueue, Queue::FailIfBusy];
        for _ in 0..2 * TRIES {
            let Some(&queue) = queues.last() else { return Ok(()) };
            // Two locks each, since single ones would share one request.
            let two =
                |at| ["a", "b"].map(|lock| exclusive(&format!("{at}{lock}")).with_queue(queue));
            let requests: Vec<_> = (0..MANY).map(two).collect();
            proxy.strand();
            // The requests are sent on a connection that is held back, and then on the next one.
            let taking = requests.iter().map(async |request| {
                loop {
                    let asked = client.acquire_all(request).ok_or("it takes no two locks")?;
                    match asked.await.as_deref() {
                        Ok([Acquired::Granted(grant), Acquired::Granted(_)]) => return Ok(*grant),
                        Ok(other) => return Err(Stop::failed(format!("{other:?}"))),
                        Err(error) if error.kind() == ErrorKind::Unavailable => {}
                        Err(error) => return Err(Stop::failed(error.to_string())),
                    }
                }
            });
            let taking = try_join_all(taking);
            let grants = timeout(SOON, taking).await??;
            try_join_all(requests.iter().flatten().map(|request| free(&client, request))).await?;
            assert_eq!(client.list("", MANY).await?, []);
            let proposals = async || server.metric("etcd_server_proposals_committed_total").await;
            let before = proposals().await?;
            proxy.abandon();
            proxy.arrive();
            let arrived = async || Ok(proposals().await.is_ok_and(|now| now > before + PROPOSED));
            // A busy server may see the end of the connection before it proposes them.
            match timeout(SOON / 4, until("late requests arrive", arrived)).await {
                Ok(arrived) => {
                    arrived?;
                    queues.pop();
                }
                Err(_) => println!("no request was proposed late: once more"),
            }
            sleep(Duration::from_millis(500)).await;
            assert_eq!(client.list("", MANY).await?, [], "a late creation was applied");
            let next = exclusive("0a").with_queue(queue);
            assert!(take(&client, &next).await?.token > grants[0].token);
            free(&client, &next).await?;
        }
        match queues[..] {
            [] => Ok(()),
            _ => Err(Stop::failed("no request was proposed late")),
        }
    });
}

/// From then on, the next claim has another key.
#[test]
fn releases_that_arrive_late_end_no_later_claims() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("etcd://{}?dlock.session_timeout=15s", proxy.address());
        let client = connect(&url).await?;
        let requests = async || {
            let requests: Vec<_> = (0..8).map(|at| exclusive(&at.to_string())).collect();
            try_join_all(requests.iter().map(|request| take(&client, request))).await?;
            let keys = try_join_all(requests.iter().map(|held| key_of(&server, held))).await?;
            Ok::<_, Stop>((requests, keys))
        };
        let (first, first_keys) = requests().await?;
        proxy.strand();
        let releasing = first.iter().map(async |held| {
            loop {
                match client.release(&held.as_claim()).await {
                    Ok(released) => return Ok(released),
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    Err(error) => return Err(error),
                }
            }
        });
        timeout(SOON, try_join_all(releasing)).await??;
        let (second, keys) = requests().await?;
        assert!(first_keys.iter().zip(&keys).any(|(first, second)| first != second), "{keys:?}");
        proxy.abandon();
        proxy.arrive();
        sleep(Duration::from_millis(500)).await;
        for (held, key) in second.iter().zip(keys) {
            assert_eq!(key_of(&server, held).await?, key, "a late release was applied");
            free(&client, held).await?;
        }
        Ok(())
    });
}

/// The number of attempts to move a session to such a member. On a busy machine, it may move to
/// another one.
const TRIES: usize = 5;

/// The metric of a server that counts the votes that it has answered.
const VOTES: &str = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"DeleteRange\",\
                     grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";

/// The holder releases and acquires again before the waiter arrives, so both of its keys have one
/// name. The member reports the deletion of the first one after the waiter has set its watch there.
#[test]
fn the_end_of_an_earlier_claim_grants_nothing() {
    run(async {
        for _ in 0..TRIES {
            if Lagging::start().await?.grants_in_order().await? {
                return Ok(());
            }
            println!("the session did not move to the member that lags behind: once more");
        }
        Err(Stop::failed("no session moved"))
    });
}

/// A follower that lags behind, and a proxy before it and one before the leader.
struct Lagging {
    servers: Ensemble,
    follower: usize,
    to_leader: Proxy,
    to_follower: Proxy,
    holder: DynBackend,
}

impl Lagging {
    async fn start() -> Result<Self, Stop> {
        let election = (Duration::from_millis(100), Duration::from_secs(4));
        let options = Options::new().with_election(election.0, election.1).with_flag("--pre-vote");
        let servers = Ensemble::start(&options).await?;
        let (leader, follower) = (servers.leader().await?, servers.followers().await?[0]);
        let address = |node: usize| servers.nodes()[node].address();
        let to_leader = Proxy::start(&address(leader)).await?;
        let to_follower = Proxy::start_for(&address(follower), Protocol::Etcd).await?;
        let url = format!("etcd://{}?dlock.session_timeout=60s", address(leader));
        let holder = connect(&url).await?;
        Ok(Self { servers, follower, to_leader, to_follower, holder })
    }

    /// Returns false if the session did not move, so that the attempt proves nothing.
    async fn grants_in_order(&self) -> Result<bool, Stop> {
        let (first, second, waiter) = (exclusive("x"), exclusive("x"), exclusive("x"));
        take(&self.holder, &first).await?;
        self.to_follower.door(Door::Closed).await?;
        let (leader, follower) = (self.to_leader.address(), self.to_follower.address());
        let url = format!("etcd://{leader},{follower}?dlock.session_timeout=24s");
        let client = connect(&url).await?;
        take(&client, &exclusive("another")).await?;
        if !self.is_asked_for_a_vote().await? {
            return Ok(false);
        }

        free(&self.holder, &first).await?;
        take(&self.holder, &second).await?;
        let asked = client.acquire(&waiter).await;
        if !matches!(asked, Ok(Acquired::Queued)) {
            println!("the waiter is not in the queue: {asked:?}");
            return Ok(false);
        }
        let granting = async {
            loop {
                match client.granted(&waiter).await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    answer => return answer,
                }
            }
        };
        tokio::pin!(granting);
        tokio::select! {
            grant = &mut granting => return Err(Stop::failed(format!("at the leader: {grant:?}"))),
            moved = self.moves() => if !moved? { return Ok(false) },
        }
        self.servers.heal(self.follower);
        self.servers.until_well().await?;
        if let Ok(grant) = timeout(Duration::from_secs(1), &mut granting).await {
            return Err(Stop::failed(format!("two holders, the second with {:?}", grant?.token)));
        }
        // The waiter waits for the event of the second key.
        free(&self.holder, &second).await?;
        timeout(SOON, granting).await??;
        free(&client, &waiter).await?;
        Ok(true)
    }

    /// Makes the leader seem late to its client, until that has sent a vote to the follower. The vote
    /// is applied there, and its answer is held back. From then on the follower lags behind.
    async fn is_asked_for_a_vote(&self) -> Result<bool, Stop> {
        self.servers.slow(self.follower, Duration::from_millis(300));
        self.to_leader.replies(Flow::Hold);
        self.to_leader.door(Door::Closed).await?;
        self.to_follower.door(Door::Open).await?;
        // The follower answers the status request at once, and the vote only after the others.
        let dialled = async || Ok(self.to_follower.answers() > 0);
        until("the follower is dialled", dialled).await?;
        self.to_follower.replies(Flow::Hold);
        let node = &self.servers.nodes()[self.follower];
        let voted = async || Ok(node.metric(VOTES).await.is_ok_and(|votes| votes > 0.0));
        let is_voted = timeout(Duration::from_secs(5), until("a vote", voted)).await.is_ok();
        self.servers.isolate(self.follower);
        self.to_leader.replies(Flow::Pass);
        Ok(is_voted)
    }

    /// Delivers the answer, with which the session moves, and waits until it has set its watches.
    async fn moves(&self) -> Result<bool, Stop> {
        let before = self.to_follower.answers();
        self.to_follower.replies(Flow::Pass);
        // After the vote, the follower answers only the reads that follow after the watches were
        // set.
        let read = async || Ok(self.to_follower.answers() >= before + 4);
        let is_set = timeout(SOON / 4, until("watches are set", read)).await;
        Ok(is_set.is_ok())
    }
}
