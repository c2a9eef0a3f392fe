//! A session that moves to a member whose state is older than its claims.

use std::time::Duration;

use dlock_core::{Acquired, DynBackend, ErrorKind};
use dlock_testlab::{
    Door, Flow, Protocol, Proxy, Stop,
    etcd::{Ensemble, Options},
};
use tokio::time::timeout;

use crate::support::{SOON, connect, exclusive, free, run, take, until};

/// How often to try to get a session to such a member. On a busy machine it may go elsewhere.
const TRIES: usize = 5;

/// The metric of a server that counts the votes that it has answered.
const VOTES: &str = "grpc_server_handled_total{grpc_code=\"OK\",grpc_method=\"DeleteRange\",\
                     grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}";

/// The holder releases and acquires again before the waiter comes, so both of its keys have one name.
/// The member reports the deletion of the first one after the waiter has set its watch there.
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

    /// Returns false if there is nothing to see, because the session did not move.
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
        // It waits there for the right event.
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
        // It answers the status at once, and the vote only after the others.
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
        // After the vote, it answers only the reads that follow when the watches are set.
        let read = async || Ok(self.to_follower.answers() >= before + 4);
        let is_set = timeout(SOON / 4, until("watches are set", read)).await;
        Ok(is_set.is_ok())
    }
}
