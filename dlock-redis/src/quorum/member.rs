//! One master of a quorum.
//!
//! # Concurrency
//!
//! A release must not overtake an acquire of its claim. If it did, it would find nothing, and then
//! the acquire would take the lock for a claim that has ended. `under_way` counts the acquires of
//! each claim, under its mutex. A release waits until there is none. It registers with `none`, then
//! reads the map again. The last acquire removes the entry, then notifies. So the release sees the
//! removal or gets the notification.
//!
//! This does not order an acquire that was sent over another connection. Its deadline does: see
//! [`unanswered`](crate::unanswered).

use std::{collections::HashMap, sync::Arc};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, Error, ErrorKind, FencingToken, Finding, Instant, LockName,
    LockState, Queue, SendFlag,
};
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::Notify;

use crate::{
    config::{RedisConfig, Topology},
    error::unreadable,
    examine::examine,
    keys::Keys,
    link::{Link, node::NodeLink},
    list::list,
    release::{ReleaseTarget, claim_ended},
    reply::{ClaimStatus, renewed, status},
    scripts::{Call, Phase, Renewing},
    session::Session,
};

/// The number of claims in one command.
pub(super) const BATCH: usize = 100;

/// The number of acquires of a claim that are under way, and the notification of the end of the
/// last.
#[derive(Default)]
struct Pending {
    count: usize,
    none: Arc<Notify>,
}

/// One master, by its own connection.
pub(super) struct Member {
    session: Session,
    /// The acquires that are under way. A release of the same claim waits for them.
    under_way: Mutex<HashMap<ClaimId, Pending>>,
}

impl Member {
    /// Begins to connect. The second value is the result of the first attempt and of the check of
    /// the user's rights.
    pub(super) async fn open(config: &RedisConfig, address: &str) -> (Self, Result<(), Error>) {
        let config = RedisConfig {
            addresses: vec![address.to_owned()],
            topology: Topology::Single,
            ..config.clone()
        };
        let (link, first) = NodeLink::open(&config, None).await;
        let member = Self {
            under_way: Mutex::default(),
            session: Session::with_link(&config, Link::Node(link), None),
        };
        let first = match first {
            Ok(()) => member.session.check_rights().await,
            failed => failed,
        };
        (member, first.map_err(|error| error.during("connect")))
    }

    /// Returns the server's clock, as far as it is known, in microseconds. Token proposals start
    /// there.
    pub(super) fn time(&self) -> u64 {
        self.session.link.server_info().time_at(Clock::Boot.now())
    }

    /// Returns the id of the running server, once it is connected.
    pub(super) fn run_id(&self) -> Option<String> {
        self.session.link.server_info().run_id.clone()
    }

    pub(super) fn address(&self) -> &str {
        self.session.link.config().addresses.first().map_or("", String::as_str)
    }

    /// Takes the lock on this master, if it is free there. Returns the answer and the time of the
    /// request. It counts as under way from the call on, not only from the first poll, so that a
    /// release can't overtake it.
    pub(super) fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        claim: ClaimId,
        proposal: u64,
        flag: SendFlag,
    ) -> impl Future<Output = Result<(ClaimStatus, Instant), Error>> + Send + use<> {
        let under_way = UnderWay::begin(self, claim);
        let request = request.clone().with_claim(claim).with_queue(Queue::FailIfBusy);
        async move { under_way.member.ask(&request, proposal, &flag).await }
    }

    async fn ask(
        self: &Arc<Self>,
        request: &AcquireRequest,
        proposal: u64,
        flag: &SendFlag,
    ) -> Result<(ClaimStatus, Instant), Error> {
        let call = self.session.scripts.acquire(request, None, proposal, false);
        let call = call.acquiring(&self.session.unanswered, std::slice::from_ref(request));
        let call = call.unsent(flag);
        let stands = status(&self.run(&call).await?)?;
        // An attempt never queues. So a claim that did not get the lock is over here, and an
        // earlier sending of it that arrives late has to be released.
        if !stands.is_held() {
            claim_ended(self, &request.name, request.claim);
        }
        Ok((stands, call.sending().began()))
    }

    /// Writes a larger token back. Returns true if the claim holds the lock on this master.
    pub(super) async fn write_token(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        token: FencingToken,
    ) -> Result<bool, Error> {
        let scripts = &self.session.scripts;
        let call = scripts
            .quorum_token
            .on(Keys::COUNT)
            .keys(&Keys::of(&request.name))
            .arg(claim.to_string())
            .arg(token.get())
            .arg(request.tokens);
        self.yes_or_no(&call).await
    }

    /// Raises the tokens of a name above this one.
    pub(super) async fn raise_tokens(
        &self,
        name: &LockName,
        above: FencingToken,
    ) -> Result<bool, Error> {
        self.yes_or_no(&self.session.scripts.raise_tokens(name, above)?).await
    }

    /// Renews leases. Returns for each claim whether it holds the lock on this master.
    pub(super) async fn renew(&self, claims: &[Renewing<'_>]) -> Result<Vec<bool>, Error> {
        let call = self.session.scripts.renew(claims, Phase::Holds);
        let answers = renewed(&self.run(&call).await?, claims.len())?;
        Ok(answers.into_iter().map(ClaimStatus::is_held).collect())
    }

    /// Returns whether its grants survive a restart, as far as that is known.
    pub(super) fn keeps_grants(&self) -> bool {
        self.session.link.keeps_grants()
    }

    /// Returns the number of claims whose release is sent later.
    pub(super) fn deferred(&self) -> usize {
        self.session.deferred.len()
    }

    pub(super) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.check_up()?;
        self.session.inspect(name).await
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        self.check_up()?;
        list(&self.session, prefix, usize::MAX).await
    }

    /// By the server's address.
    pub(super) async fn examine(&self) -> (String, Result<Vec<Finding>, Error>) {
        let findings = match self.check_up() {
            Ok(()) => examine(&self.session, 0).await,
            Err(error) => Err(error),
        };
        (self.address().to_owned(), findings)
    }

    async fn until_none_is_under_way(&self, claim: ClaimId) {
        loop {
            let none = self.under_way.lock().get(&claim).map(|pending| Arc::clone(&pending.none));
            let Some(none) = none else { return };
            let mut notified = std::pin::pin!(none.notified());
            notified.as_mut().enable();
            if !self.under_way.lock().contains_key(&claim) {
                return;
            }
            notified.await;
        }
    }

    async fn yes_or_no(&self, call: &Call<'_>) -> Result<bool, Error> {
        match self.run(call).await? {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            other => Err(unreadable("a script", &other)),
        }
    }

    /// Runs a script. An unreachable master has no vote, and is not worth a wait.
    async fn run(&self, call: &Call<'_>) -> Result<Value, Error> {
        self.check_up()?;
        self.session.run(call).await
    }

    fn check_up(&self) -> Result<(), Error> {
        if self.session.is_up() {
            return Ok(());
        }
        let unreachable =
            Error::new(ErrorKind::Unavailable, "a master of the quorum is unreachable");
        Err(unreachable.with_certainty(dlock_core::Certainty::NotApplied))
    }
}

impl ReleaseTarget for Member {
    fn session(&self) -> &Session {
        &self.session
    }

    async fn send_release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> Result<bool, Error> {
        self.until_none_is_under_way(claim).await;
        self.check_up()?;
        self.session.release(name, claim, used).await
    }
}

/// Marks an acquire and its retries as under way, until it is dropped.
struct UnderWay {
    member: Arc<Member>,
    claim: ClaimId,
}

impl UnderWay {
    fn begin(member: &Arc<Member>, claim: ClaimId) -> Self {
        member.under_way.lock().entry(claim).or_default().count += 1;
        Self { member: Arc::clone(member), claim }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut under_way = self.member.under_way.lock();
        let Some(pending) = under_way.get_mut(&self.claim) else { return };
        pending.count -= 1;
        if pending.count == 0
            && let Some(pending) = under_way.remove(&self.claim)
        {
            pending.none.notify_waiters();
        }
    }
}
