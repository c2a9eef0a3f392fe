//! One master of a quorum.

use std::{collections::HashMap, sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, ClaimId, Clock, Error, ErrorKind, FencingToken, LockName, LockState, Mode,
};
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::OwnedMutexGuard;

use crate::{
    config::{RedisConfig, Topology},
    error::unreadable,
    keys::Keys,
    link::{Link, node::NodeLink},
    reply::{self, Standing, millis, standing, standings},
    scripts::{Call, Scripts},
    session::Session,
};

/// How many claims one command carries.
pub(super) const BATCH: usize = 100;

/// Held while an acquire is under way.
type Gate = tokio::sync::Mutex<()>;

/// One master, by its own connection.
pub(super) struct Member {
    session: Session,
    /// The acquires that are under way: a release of the same claim goes behind.
    gates: Mutex<HashMap<ClaimId, Arc<Gate>>>,
    scripts: Scripts,
    retention: u64,
}

impl Member {
    /// Begins to connect. The second value is how the first attempt went.
    pub(super) async fn open(config: &RedisConfig, address: &str) -> (Self, Result<(), Error>) {
        let config = RedisConfig {
            addresses: vec![address.to_owned()],
            topology: Topology::Single,
            ..config.clone()
        };
        let (link, first) = NodeLink::open_anyway(&config).await;
        let member = Self {
            gates: Mutex::default(),
            session: Session::over(&config, Link::Node(link)),
            scripts: Scripts::new(),
            retention: u64::try_from(config.retention.as_millis()).unwrap_or(u64::MAX),
        };
        (member, first)
    }

    /// The server's clock as far as it is known, in microseconds: where a proposal starts.
    pub(super) fn time(&self) -> u64 {
        self.session.link.facts().time_at(Clock::Boot.now())
    }

    /// Takes the lock here, if it is free here.
    pub(super) async fn acquire(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        proposal: u64,
    ) -> Result<Standing, Error> {
        self.session.check_guard()?;
        let _under_way = UnderWay::begin(self, claim).await;
        let call = self
            .scripts
            .acquire
            .on(Keys::COUNT)
            .keys(&Keys::of(&request.name))
            .arg(claim.to_string())
            .arg(millis(request.lease))
            .arg(request.mode.weight())
            .arg(request.mode.capacity())
            .arg(request.tokens)
            .arg("1")
            .arg("")
            .arg(self.retention)
            .arg(0)
            .arg(0)
            .arg(proposal);
        standing(&self.run(&call).await?)
    }

    /// Writes a larger token back; whether the claim holds the lock here.
    pub(super) async fn raise(
        &self,
        request: &AcquireRequest,
        claim: ClaimId,
        token: FencingToken,
    ) -> Result<bool, Error> {
        let call = self
            .scripts
            .raise
            .on(Keys::COUNT)
            .keys(&Keys::of(&request.name))
            .arg(claim.to_string())
            .arg(token.get())
            .arg(request.tokens)
            .arg(self.retention);
        self.yes_or_no(&call).await
    }

    /// Starts leases anew; whether each claim holds the lock here.
    pub(super) async fn keep(
        &self,
        claims: &[(ClaimId, &LockName, Mode, Duration)],
    ) -> Result<Vec<bool>, Error> {
        let call = self.scripts.keep(claims, self.retention);
        let answers = standings(&self.run(&call).await?)?;
        Ok(answers.into_iter().map(Standing::is_there).collect())
    }

    /// Gives a claim up; whether it was there.
    pub(super) async fn release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> Result<bool, Error> {
        let gate = self.gates.lock().get(&claim).cloned();
        if let Some(gate) = gate {
            drop(gate.lock().await);
        }
        let call = self
            .scripts
            .release
            .on(Keys::COUNT)
            .keys(&Keys::of(name))
            .arg(claim.to_string())
            .arg(used)
            .arg(self.retention);
        self.yes_or_no(&call).await
    }

    pub(super) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let call = self.scripts.inspect.on(Keys::COUNT).keys(&Keys::of(name));
        reply::state(&self.run(&call).await?)
    }

    async fn yes_or_no(&self, call: &Call<'_>) -> Result<bool, Error> {
        match self.run(call).await? {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            other => Err(unreadable("a script", &other)),
        }
    }

    /// A master that is away is no vote, and not worth waiting for.
    async fn run(&self, call: &Call<'_>) -> Result<Value, Error> {
        if self.session.link.epoch().is_none() {
            let away = Error::new(ErrorKind::Unavailable, "a master of the quorum is away");
            return Err(away.with_certainty(dlock_core::Certainty::NotApplied));
        }
        self.session.run(call).await
    }
}

/// An acquire that is under way, perhaps asked again and again, until this is dropped.
struct UnderWay<'a> {
    member: &'a Member,
    claim: ClaimId,
    passed: Option<OwnedMutexGuard<()>>,
}

impl<'a> UnderWay<'a> {
    async fn begin(member: &'a Member, claim: ClaimId) -> Self {
        let gate = Arc::clone(member.gates.lock().entry(claim).or_default());
        Self { member, claim, passed: Some(gate.lock_owned().await) }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut gates = self.member.gates.lock();
        self.passed = None;
        // Nobody else has it in hand.
        if gates.get(&self.claim).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.claim);
        }
    }
}
