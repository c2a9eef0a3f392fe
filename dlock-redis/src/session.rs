//! A link with what to do when a command fails: what all forms of the backend send through.

use std::{borrow::Cow, sync::Arc, time::Duration};

use dlock_core::{
    Certainty, ClaimId, Clock, ConfigIssue, Error, Exclusion, Instant, LockName, LockState, Renewal,
};
use futures_util::future::join_all;
use redis::{Pipeline, RedisError, Value};

use crate::{
    config::{RedisConfig, Topology},
    error::{Cure, cure, explain, unreadable},
    inbox::Inbox,
    later::Later,
    link::{
        Link,
        window::{Kind, Sending},
    },
    reply::{self, millis},
    rights::Rights,
    scripts::{Call, Scripts},
    unanswered::Unanswered,
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
    /// The claims that are given up later.
    pub(crate) later: Later,
    /// For how long nothing is granted after a start.
    pub(crate) guard: Duration,
    /// How long one request waits for its answer.
    pub(crate) patience: Duration,
    rights: Rights,
}

impl Session {
    /// Connects, and tries out what will be needed.
    pub(crate) async fn open(
        config: &RedisConfig,
        inbox: Option<Arc<Inbox>>,
    ) -> Result<Self, Error> {
        let link = Link::open(config, inbox.clone()).await?;
        let session = Self::over(config, link, inbox);
        session.check_rights().await.map_err(|error| error.during("connect"))?;
        Ok(session)
    }

    pub(crate) fn over(config: &RedisConfig, link: Link, inbox: Option<Arc<Inbox>>) -> Self {
        let in_cluster = config.topology == Topology::Cluster;
        Self {
            rights: Rights::new(config, inbox, in_cluster),
            store: config.store(),
            topology: config.topology.clone(),
            link,
            scripts: Scripts::new(config.retention, config.format),
            unanswered: Unanswered::default(),
            later: Later::default(),
            guard: config.restart_guard.unwrap_or_default(),
            patience: config.response_timeout,
        }
    }

    /// Tries out what will be needed, on each server. In a cluster some of them may be away.
    ///
    /// # Errors
    /// `Config(Access)` for what the user may not do, `Unsupported` for what nobody may; else that of
    /// a server, if none answers.
    pub(crate) async fn check_rights(&self) -> Result<(), Error> {
        let buckets = self.link.buckets();
        let tried =
            join_all(buckets.iter().map(|bucket| self.rights.try_out(&self.link, *bucket))).await;
        let mut failed: Vec<_> = tried.into_iter().filter_map(Result::err).collect();
        let is_final = failed.iter().position(|error| !error.is_transient());
        let error = match is_final {
            Some(at) => failed.swap_remove(at),
            None if failed.len() == buckets.len() => failed.swap_remove(0),
            None => return Ok(()),
        };
        Err(error.with_store(&self.store))
    }

    /// Runs a script. Faults that asking again cures are asked about again, for about as long as
    /// an answer may take: all scripts have their effect once however often they are sent.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Value, Error> {
        self.run_through(call, &mut Trouble::new(self.patience)).await
    }

    /// Gives a claim up by the script of the release; whether the claim was there.
    pub(crate) async fn release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> Result<bool, Error> {
        self.give_up(self.scripts.release(name, claim, used), claim).await
    }

    /// Runs a script that gives a claim up; whether the claim was there. An earlier sending whose
    /// answer got lost may have been the one that found it.
    pub(crate) async fn give_up<'a>(
        &'a self,
        call: Call<'a>,
        claim: ClaimId,
    ) -> Result<bool, Error> {
        let mut trouble = Trouble::new(self.patience);
        let call = call.giving_up(&self.unanswered, claim);
        match self.run_through(&call, &mut trouble).await? {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(trouble.unknown),
            other => Err(unreadable("a release", &other)),
        }
    }

    /// Starts the leases of exclusive holders anew, by RENEW on these keys: the server's clock, when it
    /// was asked, and the places in the list of those that hold nothing so.
    pub(crate) async fn renew(
        &self,
        keys: &[&str],
        renewals: &[&Renewal],
        retention: u64,
    ) -> Result<(u64, Instant, Vec<usize>), Error> {
        let mut call = self.scripts.renew.on(keys.len()).arg(keys);
        for renewal in renewals {
            call = call.arg(renewal.claim.id.to_string()).arg(millis(renewal.lease));
        }
        let call = call.arg(retention);
        let answer = self.run(&call).await?;
        let (at, gone) = reply::renewal(&answer).ok_or_else(|| unreadable("a renewal", &answer))?;
        Ok((at, call.sending().began(), gone))
    }

    /// Who holds the lock and who waits.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        reply::state(&self.run(&self.scripts.inspect(name)).await?)
    }

    async fn run_through(&self, call: &Call<'_>, trouble: &mut Trouble) -> Result<Value, Error> {
        loop {
            match self.link.send(&trouble.commands(call), call.sending()).await {
                Ok(value) => return Ok(value),
                Err(error) => trouble.over(error).await?,
            }
        }
    }

    /// Sends commands back to back, which change nothing and may be sent again. Errors stand among
    /// the answers.
    pub(crate) async fn run_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Error> {
        let mut trouble = Trouble::new(self.patience);
        loop {
            match self.link.send_all(commands, &Sending::of(Kind::Acquire)).await {
                Ok(answers) => return Ok(answers),
                Err(error) => trouble.over(error).await?,
            }
        }
    }

    /// Whether a server can be asked just now, as far as is known. Of a cluster a part may be up.
    pub(crate) fn is_up(&self) -> bool {
        self.topology == Topology::Cluster || self.link.epoch().is_some()
    }

    /// What exclusion survives.
    pub(crate) fn exclusion(&self) -> Exclusion {
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
            "a lease of {lease:?} is longer than dlock.restart_guard ({guard:?}): set that to the \
             longest lease in use, on every client"
        ),
    ))
}

/// How long asking again goes on.
pub(crate) struct Trouble {
    began: Option<Instant>,
    patience: Duration,
    tries: u32,
    /// Whether a sending may have had its effect although no answer came.
    unknown: bool,
    /// The server does not know the script that was sent by its digest.
    with_text: bool,
}

impl Trouble {
    pub(crate) const fn new(patience: Duration) -> Self {
        Self { began: None, patience, tries: 0, unknown: false, with_text: false }
    }

    /// What is to be sent now.
    pub(crate) fn commands<'a>(&self, call: &'a Call<'_>) -> Cow<'a, Pipeline> {
        match self.with_text {
            false => Cow::Borrowed(call.by_digest()),
            true => Cow::Owned(call.by_text()),
        }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// The error explained, when there is to be none.
    pub(crate) async fn over(&mut self, error: RedisError) -> Result<(), Error> {
        let cure = cure(&error);
        self.with_text = cure == Cure::SendText && !self.with_text;
        if self.with_text {
            return Ok(());
        }
        let explained = explain(error);
        self.unknown |= explained.certainty() == Certainty::Unknown;
        let now = Clock::Boot.now();
        let spent = now.since(*self.began.get_or_insert(now)) >= self.patience;
        if spent || matches!(cure, Cure::None | Cure::SendText) {
            return Err(match self.unknown {
                true => explained.with_certainty(Certainty::Unknown),
                false => explained,
            });
        }
        let pause = Duration::from_millis(2 << self.tries.min(6));
        self.tries += 1;
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        Ok(())
    }
}
