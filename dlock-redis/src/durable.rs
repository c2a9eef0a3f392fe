//! Grants and renewals that have to be on replicas before they count (`dlock.durability`).
//!
//! `WAIT` waits until a number of replicas has all that its own connection wrote before, and blocks
//! that connection meanwhile, for a round trip to the replicas. So acquires have a separate
//! connection, on which few are under way. The others wait in the client, and are dropped if their
//! callers have gone. All others, which are renewals and confirmations of
//! grants, have one more: they wait behind no acquire. `WAIT` is sent right behind the script, in the
//! same round trip. If too few replicas answer, the script fails
//! with an unknown outcome. The core then releases a claim that it wanted to acquire. It repeats a
//! renewal; until one has succeeded, the holder believes in the lease that the replicas know.

use std::time::Duration;

use dlock_core::{AcquireRequest, Certainty, Error, ErrorKind};
use futures_util::future::{join_all, try_join};
use redis::{Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Semaphore;

use crate::{
    config::{Durability, RedisConfig, Topology},
    error::{explain, is_denial, no_token, unreadable, unreadable_record},
    link::{
        Link,
        window::{Kind, Sending},
    },
    reply::{ClaimStatus, status, statuses},
    scripts::{Call, Phase, Renewing},
    session::{Retries, Session},
    waiters::{QueuedGrant, expired},
};

/// The number of acquires under way. The server runs them one after the other, each for a round trip
/// to the replicas, so more would only wait there, and be answered too late.
const ACQUIRES: usize = 3;

/// The connections for scripts that are followed by `WAIT`.
pub(crate) struct Durable {
    acquires: Link,
    window: Semaphore,
    renewals: Link,
    durability: Durability,
    timeout: Duration,
}

impl Durable {
    pub(crate) async fn open(
        config: &RedisConfig,
        durability: Durability,
        main: &Link,
    ) -> Result<Self, Error> {
        let (acquires, renewals) =
            try_join(Link::open(config, None), Link::open(config, None)).await?;
        Self::check_rights(config, &acquires).await?;
        // Other acquires on this connection wait behind it, and must still be answered in time.
        let (window, timeout) = (Semaphore::new(ACQUIRES), config.response_timeout / 4);
        let durable = Self { acquires, window, renewals, durability, timeout };
        let checked = durable.check_majority(&config.topology, main);
        checked.map_err(|error| error.during("connect").with_store(&config.store()))?;
        Ok(durable)
    }

    /// Returns the number of replicas that must have a grant. A majority grows with the number of
    /// replicas and never becomes smaller: during a failover the new master has few of them, or none.
    pub(crate) fn replicas(&self) -> u32 {
        match self.durability {
            Durability::Master => 0,
            Durability::Replicas(replicas) => replicas,
            // Of n nodes, more than n / 2, of which the master is one.
            Durability::Majority => {
                self.acquires.most_replicas().max(self.renewals.most_replicas()).div_ceil(2)
            }
        }
    }

    /// Checks that the number of replicas is known.
    ///
    /// # Errors
    /// `Config(Access)` if the server does not report it to this user. `Unavailable` if there are
    /// none where there must be some.
    fn check_majority(&self, topology: &Topology, main: &Link) -> Result<(), Error> {
        if self.durability != Durability::Majority || self.replicas() > 0 {
            return Ok(());
        }
        main.server_info().check_replicas()?;
        match topology {
            Topology::Sentinel(_) | Topology::Cluster => Err(Error::new(
                ErrorKind::Unavailable,
                "the master has no replicas, perhaps because of a failover, so \
                 dlock.durability=majority does not know how many must have a grant: wait until a \
                 replica is connected (INFO replication), or set a number, such as \
                 dlock.durability=1",
            )),
            _ => Ok(()),
        }
    }

    /// Tries `WAIT` on each server.
    async fn check_rights(config: &RedisConfig, link: &Link) -> Result<(), Error> {
        let (mut servers, mut wait) = (link.servers(), redis::pipe());
        servers.sort();
        servers.dedup();
        wait.cmd("WAIT").arg(0).arg(1);
        let tried = join_all(servers.iter().map(|server| link.send_to(server, &wait))).await;
        // A server that is unreachable may come back.
        let denied = tried.into_iter().filter_map(Result::err).find(is_denial);
        denied.map_or(Ok(()), |error| {
            Err(explain(error).during("connect").with_store(&config.store()))
        })
    }

    /// Runs an acquire or a renewal and waits for the replicas. `has_lease` says whether an answer
    /// grants or renews a lease.
    ///
    /// # Errors
    /// `Unavailable`, with an unknown outcome, if too few replicas have that lease.
    pub(crate) async fn run(
        &self,
        call: &Call<'_>,
        has_lease: impl Fn(&Value) -> bool,
    ) -> Result<Value, Error> {
        let mut retries = Retries::new(self.timeout);
        loop {
            match self.send(retries.commands(call).into_owned(), call.sending()).await {
                Ok((value, _)) if !has_lease(&value) => return Ok(value),
                #[cfg(dlock_sim)]
                Ok((value, _)) if dlock_core::sim::has_mistake("few-replicas") => return Ok(value),
                Ok((value, waited)) => return self.judge(value, waited),
                Err(error) => retries.pause_after(error).await?,
            }
        }
    }

    /// Checks that the server that does not know a claim is the server that writes grants.
    ///
    /// # Errors
    /// `Unavailable`, with an unknown outcome, during a failover.
    pub(crate) fn check_same(&self, main: &Link) -> Result<(), Error> {
        if self.acquires.agrees_with(main) && self.renewals.agrees_with(main) {
            return Ok(());
        }
        let what = "a failover is in progress, and the server that answered is no longer the \
                    master: try again";
        Err(Error::new(ErrorKind::Unavailable, what).with_certainty(Certainty::Unknown))
    }

    /// Confirms that the replicas have a grant that another client wrote. `None` if the claim waits
    /// again, because a failover has lost that grant.
    pub(crate) async fn confirm(
        &self,
        session: &Session,
        request: &AcquireRequest,
    ) -> Result<Option<QueuedGrant>, Error> {
        let claim = Renewing::waiting(request, None);
        let call = session.scripts.renew(&[claim], Phase::Waits);
        let value = self.run(&call, won).await?;
        let since = call.sending().began();
        match statuses(&value)?.as_slice() {
            [ClaimStatus::Held(token)] => Ok(Some(QueuedGrant { token: *token, since })),
            [ClaimStatus::Waits(_)] => Ok(None),
            [ClaimStatus::NotFound] => Err(expired()),
            [ClaimStatus::NoToken] => Err(no_token()),
            [ClaimStatus::Unreadable(format)] => Err(unreadable_record(*format)),
            _ => Err(unreadable("a renewal", &value)),
        }
    }

    async fn send(
        &self,
        mut script: Pipeline,
        sending: &Sending<'_>,
    ) -> Result<(Value, RedisResult<Value>), RedisError> {
        script.cmd("WAIT").arg(self.replicas()).arg(self.timeout.as_millis().to_string());
        let answers = match sending.kind {
            Kind::Acquire => {
                // The semaphore is never closed.
                let _permit = self.window.acquire().await.ok();
                sending.commit();
                self.acquires.send_all(&script, sending).await
            }
            _ => self.renewals.send_all(&script, sending).await,
        };
        let mut answers = answers?.into_iter();
        let value = answers.next().unwrap_or_default().extract_error()?;
        Ok((value, answers.next().unwrap_or_default().extract_error()))
    }

    fn judge(&self, value: Value, waited: RedisResult<Value>) -> Result<Value, Error> {
        let replicas = match waited {
            Ok(Value::Int(replicas)) => replicas,
            Ok(_) => 0,
            // The server has executed the script before it anyway.
            Err(error) => return Err(explain(error).with_certainty(Certainty::Unknown)),
        };
        let required = self.replicas();
        if replicas >= i64::from(required) {
            return Ok(value);
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "only {replicas} of {required} replicas have the lease, so it does not count: check \
                 that they run and keep up, or lower dlock.durability"
            ),
        )
        .with_certainty(Certainty::Unknown))
    }
}

/// Returns whether the answer to a script for one claim or several shows that a lock is held.
pub(crate) fn won(value: &Value) -> bool {
    let held = |answer: &Value| status(answer).is_ok_and(ClaimStatus::is_held);
    match value {
        Value::Array(answers) if matches!(answers.first(), Some(Value::Array(_))) => {
            answers.iter().any(held)
        }
        answer => held(answer),
    }
}
