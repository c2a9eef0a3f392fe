//! Spans around the verbs.

use std::sync::Arc;

use async_trait::async_trait;
use tracing::{Instrument, Span, field::Empty, level_filters::LevelFilter};

use crate::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, DynBackend, Error, FencingToken,
    Finding, Grant, LockName, LockState, Released, Renewal, Renewed,
};

/// Wraps every verb in a `tracing` span of level debug, with target `dlock`.
///
/// | span | fields |
/// |---|---|
/// | `dlock.acquire`, `dlock.granted` | `backend`, `lock.name`, `claim`, `outcome`, `token` |
/// | `dlock.release` | `backend`, `lock.name`, `claim`, `outcome` |
/// | `dlock.renew` | `backend`, `claims`, `outcome` |
/// | `dlock.inspect` | `backend`, `lock.name`, `outcome` |
/// | `dlock.list` | `backend`, `prefix`, `outcome` |
/// | `dlock.examine` | `backend`, `outcome` |
/// | `dlock.acquire_all` | `backend`, `claims`, `outcome` |
/// | `dlock.raise_tokens` | `backend`, `lock.name`, `above`, `outcome` |
///
/// `outcome` is `granted`, `queued`, `busy`, `released`, `lost`, `ok` or `error`; errors are in the
/// field `error`. A claim is shown by its first eight digits, which are not enough to release a
/// lock.
#[derive(Debug)]
pub struct Traced {
    inner: DynBackend,
}

impl Traced {
    /// Wraps a backend.
    pub fn new(inner: DynBackend) -> Arc<Self> {
        Arc::new(Self { inner })
    }

    fn answer<T: TracedAnswer + Send + 'static>(span: Span, answer: Answer<T>) -> Answer<T> {
        if span.is_disabled() {
            return answer;
        }
        match answer.try_ready() {
            Ok(result) => {
                record(&span, &result);
                Answer::ready(result)
            }
            Err(later) => later.wrap(|later| traced(span, later)),
        }
    }
}

/// The text that describes an answer.
trait TracedAnswer {
    fn outcome(&self) -> &'static str {
        "ok"
    }

    fn token(&self) -> Option<u64> {
        None
    }
}

impl TracedAnswer for Acquired {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Queued => "queued",
            Self::Busy => "busy",
        }
    }

    fn token(&self) -> Option<u64> {
        match self {
            Self::Granted(grant) => Some(grant.token.get()),
            _ => None,
        }
    }
}

impl TracedAnswer for Grant {
    fn outcome(&self) -> &'static str {
        "granted"
    }

    fn token(&self) -> Option<u64> {
        Some(self.token.get())
    }
}

impl TracedAnswer for Released {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::AlreadyLost => "lost",
        }
    }
}

impl TracedAnswer for Vec<Acquired> {
    fn outcome(&self) -> &'static str {
        let rank = |answer: &Acquired| match answer {
            Acquired::Busy => 0,
            Acquired::Queued => 1,
            Acquired::Granted(_) => 2,
        };
        self.iter().min_by_key(|answer| rank(answer)).map_or("ok", TracedAnswer::outcome)
    }
}

impl TracedAnswer for Vec<Renewed> {
    fn outcome(&self) -> &'static str {
        let rank = |answer: &Renewed| match answer {
            Renewed::Lost | Renewed::Forgotten => ("lost", 0),
            Renewed::Unknown => ("unknown", 1),
            Renewed::Kept => ("ok", 2),
        };
        self.iter().map(rank).min_by_key(|(_, rank)| *rank).map_or("ok", |(outcome, _)| outcome)
    }
}

impl TracedAnswer for Vec<LockName> {}
impl TracedAnswer for Vec<Finding> {}
impl TracedAnswer for () {}
impl TracedAnswer for LockState {}

/// Runs a verb in its span.
async fn traced<T: TracedAnswer>(
    span: Span,
    verb: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let result = verb.instrument(span.clone()).await;
    record(&span, &result);
    result
}

fn record<T: TracedAnswer>(span: &Span, result: &Result<T, Error>) {
    match result {
        Ok(answer) => {
            span.record("outcome", answer.outcome());
            if let Some(token) = answer.token() {
                span.record("token", token);
            }
        }
        Err(error) => {
            span.record("outcome", "error");
            span.record("error", tracing::field::display(error));
        }
    }
}

/// Returns whether no subscriber wants such spans. This is one load; a disabled span costs some
/// tens of nanoseconds, and more if another crate has enabled tracing's feature `log`.
fn without_a_subscriber() -> bool {
    LevelFilter::current() < LevelFilter::DEBUG
}

/// Returns the part of a claim's id that may be shown.
fn short(id: crate::ClaimId) -> String {
    let mut text = id.to_string();
    text.truncate(8);
    text
}

macro_rules! verb {
    ($name:literal, $self:ident, $($fields:tt)*) => {
        tracing::debug_span!(
            target: "dlock", $name, backend = $self.inner.store(),
            outcome = Empty, token = Empty, error = Empty, $($fields)*
        )
    };
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Traced {
    forward! {
        properties,
        store() -> &str,
        shard(name: &LockName) -> u32,
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        if without_a_subscriber() {
            return self.inner.acquire(request);
        }
        let span =
            verb!("dlock.acquire", self, lock.name = %request.name, claim = short(request.claim));
        let answer = span.in_scope(|| self.inner.acquire(request));
        Self::answer(span, answer)
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let span =
            verb!("dlock.granted", self, lock.name = %request.name, claim = short(request.claim));
        traced(span, self.inner.granted(request)).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let span = verb!("dlock.renew", self, claims = renewals.len());
        traced(span, self.inner.renew(renewals)).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        if without_a_subscriber() {
            return self.inner.release(claim);
        }
        let span = verb!("dlock.release", self, lock.name = %claim.name, claim = short(claim.id));
        let answer = span.in_scope(|| self.inner.release(claim));
        Self::answer(span, answer)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let span = verb!("dlock.inspect", self, lock.name = %name);
        traced(span, self.inner.inspect(name)).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()?;
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let span = verb!("dlock.acquire_all", self, claims = requests.len());
        let answer = span.in_scope(|| self.inner.acquire_all(requests))?;
        Some(Self::answer(span, answer))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Admin for Traced {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let span = verb!("dlock.list", self, prefix);
        traced(span, self.inner.list(prefix, limit)).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let span = verb!("dlock.examine", self,);
        traced(span, self.inner.examine()).await
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        let span = verb!("dlock.raise_tokens", self, lock.name = %name, above = above.get());
        traced(span, self.inner.raise_tokens(name, above)).await
    }
}
