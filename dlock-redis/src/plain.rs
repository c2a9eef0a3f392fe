//! The well-known lock: `SET NAME claim NX PX lease`, and a compare-and-delete script.
//!
//! See <https://redis.io/docs/latest/commands/set/>. Here the `SET` is in a script as well, so that
//! it has no effect if it arrives late. The key is the lock's name, unchanged, and its value is the
//! claim in 32 hexadecimal digits. So other programs can read it, respect it, and hold it with a
//! value of their own. This form has one kind of lock and no queue. Tokens mean nothing: they are
//! only the server's clock, which may be set back.
//!
//! A waiter polls, so no notification is needed, and no step follows a grant. If the process dies,
//! the key expires. If the answer to a `SET` is lost, the retry finds the claim's own value, and
//! the claim has the lock.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Backoff, Certainty, Claim, ClaimId,
    ClaimState, Error, ErrorKind, FencingToken, Finding, Grant, Guarantees, LockName, LockState,
    Mode, Queue, Released, Renewal, Renewed, Scope, SendFlag,
};
use redis::Value;

use crate::{
    config::RedisConfig,
    error::{explain, unreadable},
    examine::examine,
    list::list_plain,
    release::{ReleaseTarget, claim_ended, release},
    renew::renewed_exclusive,
    reply::millis,
    session::Session,
};

/// One server, as one client sees it.
pub(crate) struct Plain(Arc<PlainShared>);

struct PlainShared {
    session: Session,
}

impl Plain {
    pub(crate) async fn connect(config: RedisConfig) -> Result<Arc<Self>, Error> {
        let session = Session::open(&config, None).await?;
        Ok(Arc::new(Self(Arc::new(PlainShared { session }))))
    }
}

impl PlainShared {
    async fn acquire(&self, request: &AcquireRequest, flag: &SendFlag) -> Result<Acquired, Error> {
        if request.mode != Mode::Exclusive {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the plain form (dlock.plain) supports only the mutex: remove it to use readers \
                 and permits",
            ));
        }
        self.session.check_lease(request.lease)?;
        let call = self
            .session
            .scripts
            .acquire_plain
            .on(1)
            .arg(request.name.as_str())
            .arg(request.claim.to_string())
            .arg(millis(request.lease))
            .acquiring(&self.session.unanswered, std::slice::from_ref(request))
            .unsent(flag);
        let answer = self.session.run(&call).await?;
        let at = match answer {
            Value::Int(0) => return Ok(Acquired::Busy),
            Value::Int(at) => u64::try_from(at).ok(),
            _ => None,
        };
        let token = at.and_then(|at| FencingToken::new(at).ok());
        let token = token.ok_or_else(|| unreadable("a script", &answer))?;
        Ok(Acquired::Granted(Grant::new(token, request.tokens, call.sending().began())))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let mut commands = redis::pipe();
        commands.cmd("GET").arg(name.as_str()).cmd("PTTL").arg(name.as_str());
        let answers = self.session.run_all(&commands).await?;
        match answers.as_slice() {
            // The key may expire between the two commands.
            [Value::Nil, _] | [_, Value::Int(-2)] => Ok(LockState::default()),
            [Value::BulkString(value), Value::Int(left)] => {
                // A value that another program wrote is not a claim of dlock.
                let claim = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let remaining = match u64::try_from(*left) {
                    Ok(left) => Duration::from_millis(left),
                    Err(_) => Duration::MAX,
                };
                let holder = ClaimState::new(
                    claim.unwrap_or(ClaimId::UNKNOWN),
                    Mode::Exclusive,
                    None,
                    remaining,
                );
                Ok(LockState::new(vec![holder], Vec::new(), None))
            }
            [Value::ServerError(error), _] | [_, Value::ServerError(error)] => {
                Err(explain(error.clone().into()))
            }
            other => Err(unreadable("GET and PTTL", &Value::Array(other.to_vec()))),
        }
    }
}

impl ReleaseTarget for PlainShared {
    fn session(&self) -> &Session {
        &self.session
    }

    async fn send_release(&self, name: &LockName, claim: ClaimId, _: u32) -> Result<bool, Error> {
        let call =
            self.session.scripts.release_plain.on(1).arg(name.as_str()).arg(claim.to_string());
        self.session.run_release(call, claim).await
    }
}

#[async_trait]
impl Backend for Plain {
    fn store(&self) -> &str {
        &self.0.session.store
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::WEAKEST.with_exclusion(self.0.session.exclusion()).with_scope(Scope::Network)
    }

    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.0.session.check_lease(lease)
    }

    fn response_timeout(&self) -> Duration {
        self.0.session.response_timeout
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (shared, request) = (Arc::clone(&self.0), request.clone());
        Answer::unsent(|flag| async move {
            match shared.acquire(&request, &flag).await {
                Ok(Acquired::Busy) if request.queue == Queue::Enqueue => Ok(Acquired::Queued),
                Ok(Acquired::Busy) => {
                    claim_ended(&shared, &request.name, request.claim);
                    Ok(Acquired::Busy)
                }
                answer => answer,
            }
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let mut pause = Backoff::of_polls(request.lease);
        loop {
            // The core drops a poll whenever it wants to, and then releases the claim.
            match self.0.acquire(request, &SendFlag::new()).await {
                Ok(Acquired::Granted(grant)) => return Ok(grant),
                Ok(_) => pause.wait().await,
                // An earlier poll whose answer was lost may have taken the lock for this claim.
                Err(error) => return Err(error.with_certainty(Certainty::Unknown)),
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let keys: Vec<_> = renewals.iter().map(|r| r.claim.name.as_str()).collect();
        let renewals: Vec<_> = renewals.iter().map(|renewal| (renewal, None)).collect();
        let call = self.0.session.scripts.renew_exclusive(&keys, &renewals);
        let (_, gone) = renewed_exclusive(&self.0.session.run(&call).await?)?;
        let mut answers = vec![Renewed::Kept; renewals.len()];
        for at in gone {
            if let Some(answer) = answers.get_mut(at) {
                *answer = Renewed::Lost;
            }
        }
        Ok(answers)
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (shared, claim) = (Arc::clone(&self.0), claim.clone());
        Answer::later(async move {
            let found = release(&shared, &claim.name, claim.id, claim.used).await?;
            Ok(if found { Released::Released } else { Released::AlreadyLost })
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.0.inspect(name).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for Plain {
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        examine(&self.0.session, 0).await
    }

    /// Lists every string with this prefix, since nothing distinguishes a lock from another string.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        list_plain(&self.0.session, prefix, limit).await
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").field("store", &self.store()).finish_non_exhaustive()
    }
}
