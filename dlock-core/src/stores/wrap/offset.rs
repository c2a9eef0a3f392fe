//! A store whose tokens continue above those of another.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Certainty, Claim, ConfigIssue, DynBackend,
    Error, ErrorKind, Fencing, FencingToken, Finding, Grant, LockName, LockState, Released,
    Renewal, Renewed,
};

/// Adds a number to every token of a store, for a resource that has seen larger tokens of another
/// store. With the largest of those as the offset, every token of this store is larger, whatever
/// the store's clock shows.
///
/// **All clients of a name must have the same offset.** With two different offsets, the later of
/// two grants may have the smaller token. The store does not keep the offset: change it only while
/// nobody uses the store. Never make it smaller, unless
/// [`Locks::examine_token`](crate::Locks::examine_token) finds that the tokens still grow.
///
/// ```
/// # mod dlock { pub use dlock_core::*; pub mod backend { pub use dlock_core::*; } }
/// use dlock::{Locks, backend::{Memory, TokenOffset}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
/// let seen = 1_795_430_128_330_001;
/// let locks = Locks::new(TokenOffset::new(Memory::new(), seen)?)?;
/// let guard = locks.mutex("inventory/42")?.lock().await?;
/// assert!(guard.token().get() > seen);
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TokenOffset {
    inner: DynBackend,
    offset: u64,
}

impl TokenOffset {
    /// The largest offset, 2^62: half of all tokens remain above it.
    pub const MAX: u64 = 1 << 62;

    /// Wraps a backend.
    ///
    /// # Errors
    /// `Config(Token)` for an offset above [`MAX`](Self::MAX).
    pub fn new(inner: DynBackend, offset: u64) -> Result<Arc<Self>, Error> {
        if offset > Self::MAX {
            return Err(Error::config(
                ConfigIssue::Token,
                format!(
                    "a token offset of {offset} leaves too few tokens: use 0 to {}, such as the \
                     largest token that a resource has seen",
                    Self::MAX
                ),
            ));
        }
        Ok(Arc::new(Self { inner, offset }))
    }

    /// Returns the inner store's token for one with the offset; `None` if the token is below the
    /// offset.
    fn inner_token(&self, token: FencingToken) -> Option<FencingToken> {
        FencingToken::new(token.get().checked_sub(self.offset)?).ok()
    }

    /// Returns the conversion of tokens in answers.
    const fn shift(&self) -> Shift {
        Shift(self.offset)
    }
}

/// Adds the offset to the tokens of answers.
#[derive(Clone, Copy, Debug)]
struct Shift(u64);

impl Shift {
    fn token(self, token: FencingToken) -> Result<FencingToken, Error> {
        let sum = token.get().checked_add(self.0);
        sum.and_then(|sum| FencingToken::new(sum).ok()).ok_or_else(|| {
            Error::config(
                ConfigIssue::Token,
                format!(
                    "no fencing token is left for this name above the offset: the store's token \
                     {token} plus dlock.token_offset={} exceeds 2^63 - 1; use another name, or a \
                     smaller offset if no resource has seen a larger token",
                    self.0
                ),
            )
        })
    }

    fn grant(self, grant: Grant) -> Result<Grant, Error> {
        // The store has granted the claim, so the core has to release it.
        let token =
            self.token(grant.token).map_err(|error| error.with_certainty(Certainty::Unknown))?;
        // A block ends at the largest possible token.
        let behind = FencingToken::MAX.get() - token.get();
        let tokens = grant.tokens.min(u32::try_from(behind).unwrap_or(u32::MAX).saturating_add(1));
        Ok(Grant { token, tokens, ..grant })
    }

    fn acquired(self, acquired: Acquired) -> Result<Acquired, Error> {
        match acquired {
            Acquired::Granted(grant) => self.grant(grant).map(Acquired::Granted),
            other => Ok(other),
        }
    }

    fn state(self, mut state: LockState) -> Result<LockState, Error> {
        for claim in state.holders.iter_mut().chain(&mut state.waiters) {
            claim.token = claim.token.map(|token| self.token(token)).transpose()?;
        }
        state.last_token = state.last_token.map(|token| self.token(token)).transpose()?;
        Ok(state)
    }
}

/// Applies `then` to the answer: at once if it is ready.
fn and_then<T: Send + 'static>(
    answer: Answer<T>,
    then: impl FnOnce(T) -> Result<T, Error> + Send + 'static,
) -> Answer<T> {
    match answer.try_ready() {
        Ok(result) => Answer::ready(result.and_then(then)),
        Err(later) => later.wrap(|later| async move { later.await.and_then(then) }),
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for TokenOffset {
    forward! {
        properties,
        store() -> &str,
        shard(name: &LockName) -> u32,
        release(claim: &Claim) -> Answer<Released>,
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let shift = self.shift();
        and_then(self.inner.acquire(request), move |acquired| shift.acquired(acquired))
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.shift().grant(self.inner.granted(request).await?)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        // The inner store compares its own token to detect a loss of data.
        let renewals: Vec<Renewal> = renewals
            .iter()
            .map(|renewal| Renewal {
                token: renewal.token.and_then(|token| self.inner_token(token)),
                ..renewal.clone()
            })
            .collect();
        self.inner.renew(&renewals).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.shift().state(self.inner.inspect(name).await?)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        // The wrapper adds a finding of its own.
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let shift = self.shift();
        let names: Vec<_> = requests.iter().map(|request| request.name.clone()).collect();
        Some(and_then(self.inner.acquire_all(requests)?, move |answers| {
            let ours = |(at, acquired)| {
                // The core reports a wrong number of answers.
                let named = |error: Error| match names.get(at) {
                    Some(name) => error.with_lock(name),
                    None => error,
                };
                shift.acquired(acquired).map_err(named)
            };
            answers.into_iter().enumerate().map(ours).collect()
        }))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Admin for TokenOffset {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        self.inner.list(prefix, limit).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = self.inner.examine().await?;
        findings.push(Finding::fine(
            "token offset",
            format!("tokens are larger than the store's own by {}", self.offset),
        ));
        Ok(findings)
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        let Some(inner) = self.inner_token(above) else {
            if self.guarantees().fencing > Fencing::None {
                // All tokens are already above it.
                return Ok(());
            }
            return self.inner.raise_tokens(name, above).await;
        };
        let raised = self.inner.raise_tokens(name, inner).await;
        raised.map_err(|error| match error.kind() {
            // The error names the inner store's number.
            ErrorKind::Config(issue @ ConfigIssue::Token) => {
                let text = format!("without the offset, {above} is {inner}: {error}");
                Error::config(issue, text).with_source(error)
            }
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Locks, Memory};

    #[test]
    fn an_offset_without_room_above_it_is_refused() {
        assert!(TokenOffset::new(Memory::new(), TokenOffset::MAX).is_ok());
        for offset in [TokenOffset::MAX + 1, u64::MAX] {
            let error = TokenOffset::new(Memory::new(), offset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Token));
            assert!(error.to_string().contains("use 0 to 4611686018427387904"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_block_ends_with_the_last_token() {
        let (store, name) = (Memory::new(), LockName::new("n").unwrap());
        let above = FencingToken::new(FencingToken::MAX.get() - TokenOffset::MAX - 3).unwrap();
        store.raise_tokens(&name, above).await.unwrap();
        let shifted = TokenOffset::new(store, TokenOffset::MAX).unwrap();
        let lease = Duration::from_secs(30);
        let request = AcquireRequest::new(name, crate::Mode::Exclusive, lease).with_tokens(10);
        let Acquired::Granted(grant) = shifted.acquire(&request).await.unwrap() else {
            panic!("it is free");
        };
        assert_eq!((grant.token.get(), grant.tokens), (FencingToken::MAX.get() - 2, 3));
    }

    #[tokio::test]
    async fn a_token_below_the_offset_needs_no_raise() {
        let (store, name) = (Memory::new(), LockName::new("n").unwrap());
        let shifted = TokenOffset::new(Arc::clone(&store) as DynBackend, 1 << 60).unwrap();
        let token = |value| FencingToken::new(value).unwrap();
        shifted.raise_tokens(&name, token(1 << 60)).await.unwrap();
        assert_eq!(store.inspect(&name).await.unwrap().last_token, None);
        shifted.raise_tokens(&name, token((1 << 60) + (1 << 59))).await.unwrap();
        assert_eq!(store.inspect(&name).await.unwrap().last_token, Some(token(1 << 59)));
        let guard = Locks::new(shifted).unwrap().mutex(&name).unwrap().lock().await.unwrap();
        assert_eq!(guard.token(), token((1 << 60) + (1 << 59) + 1));
    }
}
