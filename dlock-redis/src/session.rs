//! A link with the retries of failed commands. All forms of the backend send through it.
//!
//! After an error a command is sent again only if a second execution does no harm. This holds for
//! all scripts, since they are idempotent by claim id. The result of a retry has to account for the
//! first sending, which may have been executed without an answer: see [`Session::run_release`]. An
//! acquire that arrives too late is refused because of its deadline: see
//! [`unanswered`](crate::unanswered).

use std::{borrow::Cow, sync::Arc, time::Duration};

use dlock_core::{
    Backoff, Certainty, ClaimId, Clock, ConfigIssue, Error, Exclusion, Instant, LockName,
};
use futures_util::future::join_all;
use redis::{Pipeline, RedisError, Value};

use crate::{
    config::{RedisConfig, Topology},
    deferred_releases::DeferredReleases,
    error::{Remedy, explain, remedy_of, unreadable},
    link::{
        Link,
        window::{Kind, Sending},
    },
    preflight::Preflight,
    scripts::{Call, Scripts},
    unanswered::Unanswered,
    waiters::Waiters,
};

/// One connected store.
pub(crate) struct Session {
    /// Kind and address, without secrets.
    pub(crate) store: String,
    pub(crate) topology: Topology,
    pub(crate) link: Link,
    pub(crate) scripts: Scripts,
    /// The acquires that may still arrive.
    pub(crate) unanswered: Unanswered,
    /// The claims whose release is sent later.
    pub(crate) deferred: DeferredReleases,
    /// The restart guard.
    pub(crate) guard: Duration,
    /// How long one request waits for its answer.
    pub(crate) response_timeout: Duration,
    preflight: Preflight,
}

impl Session {
    /// Connects, and checks the rights.
    pub(crate) async fn open(
        config: &RedisConfig,
        waiters: Option<Arc<Waiters>>,
    ) -> Result<Self, Error> {
        let link = Link::open(config, waiters.clone()).await?;
        let session = Self::with_link(config, link, waiters);
        session.check_rights().await.map_err(|error| error.during("connect"))?;
        Ok(session)
    }

    pub(crate) fn with_link(
        config: &RedisConfig,
        link: Link,
        waiters: Option<Arc<Waiters>>,
    ) -> Self {
        let in_cluster = config.topology == Topology::Cluster;
        Self {
            preflight: Preflight::new(config, waiters, in_cluster),
            store: config.store(),
            topology: config.topology.clone(),
            link,
            scripts: Scripts::new(),
            unanswered: Unanswered::default(),
            deferred: DeferredReleases::default(),
            guard: config.restart_guard.unwrap_or_default(),
            response_timeout: config.response_timeout,
        }
    }

    /// Checks the rights on each server. In a cluster some of them may be unreachable.
    ///
    /// # Errors
    /// `Config(Access)` if the user lacks a right, `Unsupported` if no user can have it. The error
    /// of one server, if none answers.
    pub(crate) async fn check_rights(&self) -> Result<(), Error> {
        let buckets = self.link.buckets();
        let tried =
            join_all(buckets.iter().map(|bucket| self.preflight.check(&self.link, *bucket))).await;
        let mut failed: Vec<_> = tried.into_iter().filter_map(Result::err).collect();
        let is_final = failed.iter().position(|error| !error.is_transient());
        let error = match is_final {
            Some(at) => failed.swap_remove(at),
            None if failed.len() == buckets.len() => failed.swap_remove(0),
            None => return Ok(()),
        };
        Err(error.with_store(&self.store))
    }

    /// Runs a script. Errors that a retry can cure are retried for about one response timeout.
    /// Every script has its effect once, however often it is sent.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Value, Error> {
        self.run_through(call, &mut Retries::new(self.response_timeout)).await
    }

    /// Releases or cancels a claim with the script RELEASE. Returns true if the claim was there.
    pub(crate) async fn release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> Result<bool, Error> {
        self.run_release(self.scripts.release(name, claim, used), claim).await
    }

    /// Releases a claim that probably holds its lock alone. Returns whether the claim was there, and
    /// whether other claims wait.
    pub(crate) async fn release_alone(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> Result<(bool, bool), Error> {
        let mut retries = Retries::new(self.response_timeout);
        let call = self.scripts.release_alone(name, claim).releasing(&self.unanswered, claim);
        let others_wait = match self.run_through(&call, &mut retries).await? {
            Value::Int(1) => return Ok((true, false)),
            Value::Int(0) => false,
            Value::Int(2) => true,
            other => return Err(unreadable("a release", &other)),
        };
        let call = self.scripts.release(name, claim, used);
        Ok((self.run_release_again(call, claim, retries.of_next()).await?, others_wait))
    }

    /// Runs a script that releases or cancels a claim. Returns true if the claim was there.
    pub(crate) async fn run_release<'a>(
        &'a self,
        call: Call<'a>,
        claim: ClaimId,
    ) -> Result<bool, Error> {
        self.run_release_again(call, claim, Retries::new(self.response_timeout)).await
    }

    async fn run_release_again<'a>(
        &'a self,
        call: Call<'a>,
        claim: ClaimId,
        mut retries: Retries,
    ) -> Result<bool, Error> {
        let call = call.releasing(&self.unanswered, claim);
        match self.run_through(&call, &mut retries).await? {
            Value::Int(1) => Ok(true),
            // An earlier sending whose answer was lost may have removed the claim. That counts as
            // found: the caller must not report a loss that did not happen.
            Value::Int(0) => Ok(retries.unknown),
            other => Err(unreadable("a release", &other)),
        }
    }

    async fn run_through(&self, call: &Call<'_>, retries: &mut Retries) -> Result<Value, Error> {
        loop {
            match self.link.send(&retries.commands(call), call.sending()).await {
                Ok(value) => return Ok(value),
                Err(error) => retries.pause_after(error).await?,
            }
        }
    }

    /// Sends commands back to back. They change nothing, so they may be sent again. The answers
    /// contain the errors.
    pub(crate) async fn run_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Error> {
        let mut retries = Retries::new(self.response_timeout);
        loop {
            match self.link.send_all(commands, &Sending::of(Kind::Acquire)).await {
                Ok(answers) => return Ok(answers),
                Err(error) => retries.pause_after(error).await?,
            }
        }
    }

    /// Returns whether there is a connection to the server. A cluster always counts as up, since a
    /// part may be.
    pub(crate) fn is_up(&self) -> bool {
        self.topology == Topology::Cluster || self.link.epoch().is_some()
    }

    /// Returns the faults that exclusion survives.
    pub(crate) fn exclusion(&self) -> Exclusion {
        // Only a single server keeps its grants by its own settings.
        let alone = matches!(self.topology, Topology::Single | Topology::Socket);
        match alone && self.link.keeps_grants() {
            true => Exclusion::Restart,
            // A replica that takes over may have missed a grant.
            false => Exclusion::Nothing,
        }
    }

    /// Refuses leases that the restart guard does not outlast.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        check_lease(lease, self.guard)
    }
}

/// Refuses leases that a restart guard does not outlast.
pub(crate) fn check_lease(lease: Duration, guard: Duration) -> Result<(), Error> {
    if guard.is_zero() || lease <= guard {
        return Ok(());
    }
    Err(Error::config(
        ConfigIssue::Lease,
        format!(
            "a lease of {lease:?} is longer than dlock.restart_guard ({guard:?}): set \
             dlock.restart_guard to the longest lease in use, on every client"
        ),
    ))
}

/// The retries of one command.
pub(crate) struct Retries {
    began: Option<Instant>,
    budget: Duration,
    backoff: Backoff,
    /// Whether a sending without an answer may have been executed.
    unknown: bool,
    /// The server does not know the digest of the script, so its text is sent.
    with_text: bool,
}

impl Retries {
    pub(crate) const fn new(budget: Duration) -> Self {
        let backoff = Backoff::between(Duration::from_millis(2), Duration::from_millis(128));
        Self { began: None, budget, backoff, unknown: false, with_text: false }
    }

    /// Returns the retries of the next command, for the same purpose.
    const fn of_next(self) -> Self {
        Self { unknown: self.unknown, ..Self::new(self.budget) }
    }

    /// Returns whether a sending without an answer may have been executed.
    pub(crate) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Returns the command to send now.
    pub(crate) fn commands<'a>(&self, call: &'a Call<'_>) -> Cow<'a, Pipeline> {
        match self.with_text {
            false => Cow::Borrowed(call.by_digest()),
            true => Cow::Owned(call.by_text()),
        }
    }

    /// Waits before the next retry.
    ///
    /// # Errors
    /// The explained error, if there is no further retry.
    pub(crate) async fn pause_after(&mut self, error: RedisError) -> Result<(), Error> {
        let remedy = remedy_of(&error);
        // Immediately: the server has refused the digest, so it has done nothing. Not twice in a
        // row, since a server that knows neither form would be asked for ever.
        self.with_text = remedy == Remedy::SendText && !self.with_text;
        if self.with_text {
            return Ok(());
        }
        let explained = explain(error);
        self.unknown |= explained.certainty() == Certainty::Unknown;
        let now = Clock::Boot.now();
        let spent = now.since(*self.began.get_or_insert(now)) >= self.budget;
        if spent || matches!(remedy, Remedy::None | Remedy::SendText) {
            // The last error may say that nothing was applied. It says nothing about the earlier
            // sendings.
            return Err(match self.unknown {
                true => explained.with_certainty(Certainty::Unknown),
                false => explained,
            });
        }
        self.backoff.wait().await;
        Ok(())
    }
}
