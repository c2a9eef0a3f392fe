//! A namespace in a store.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, ConfigIssue, DynBackend, Error,
    FencingToken, Finding, Grant, LockName, LockState, Released, Renewal, Renewed,
};

/// Adds a prefix to every name, so that applications can share a store.
///
/// The prefix is part of the name in the store and counts towards its length. Prefix `a` with name
/// `bc` and prefix `ab` with name `c` are the same lock: end a prefix with a separator that names
/// do not begin with.
#[derive(Debug)]
pub struct Prefixed {
    inner: DynBackend,
    prefix: String,
    store: String,
}

impl Prefixed {
    /// Wraps a backend.
    ///
    /// # Errors
    /// `Config(Name)` for a prefix that no name can begin with.
    pub fn new(inner: DynBackend, prefix: &str) -> Result<Arc<Self>, Error> {
        LockName::new(prefix)?;
        if prefix.len() >= LockName::MAX_BYTES {
            return Err(Error::config(
                ConfigIssue::Name,
                format!(
                    "a prefix of {} bytes leaves no room for a name: use a shorter prefix",
                    prefix.len()
                ),
            ));
        }
        // Names with two prefixes are two locks, so the wrapped store is a different store.
        let store = format!("{} below {prefix:?}", inner.store());
        Ok(Arc::new(Self { inner, prefix: prefix.to_owned(), store }))
    }

    fn name(&self, name: &LockName) -> Result<LockName, Error> {
        LockName::new(&format!("{}{name}", self.prefix)).map_err(|error| error.with_lock(name))
    }

    fn request(&self, request: &AcquireRequest) -> Result<AcquireRequest, Error> {
        Ok(AcquireRequest { name: self.name(&request.name)?, ..request.clone() })
    }

    fn claim(&self, claim: &Claim) -> Result<Claim, Error> {
        Ok(Claim { name: self.name(&claim.name)?, ..claim.clone() })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Prefixed {
    fn store(&self) -> &str {
        &self.store
    }

    forward! { properties }

    fn shard(&self, name: &LockName) -> u32 {
        // The verb refuses a name that is too long before anything is stored.
        self.name(name).map_or(0, |name| self.inner.shard(&name))
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        match self.request(request) {
            Ok(request) => self.inner.acquire(&request),
            Err(error) => Answer::ready(Err(error)),
        }
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.inner.granted(&self.request(request)?).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let renewals: Vec<Renewal> = renewals
            .iter()
            .map(|renewal| Ok(Renewal { claim: self.claim(&renewal.claim)?, ..renewal.clone() }))
            .collect::<Result<_, Error>>()?;
        self.inner.renew(&renewals).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        match self.claim(claim) {
            Ok(claim) => self.inner.release(&claim),
            Err(error) => Answer::ready(Err(error)),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.inner.inspect(&self.name(name)?).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()?;
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        match requests.iter().map(|request| self.request(request)).collect::<Result<Vec<_>, _>>() {
            Ok(requests) => self.inner.acquire_all(&requests),
            Err(error) => Some(Answer::ready(Err(error))),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Admin for Prefixed {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        // The prefix itself is a valid name in the store, but not here.
        let more = limit.saturating_add(1);
        let names = self.inner.list(&format!("{}{prefix}", self.prefix), more).await?;
        let inner = names.iter().filter_map(|name| name.as_str().strip_prefix(&self.prefix));
        Ok(inner.filter_map(|name| LockName::new(name).ok()).take(limit).collect())
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.inner.examine().await
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.inner.raise_tokens(&self.name(name)?, above).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Locks, Memory};

    #[tokio::test]
    async fn prefixes_keep_applications_apart() {
        let store: DynBackend = Memory::new();
        let a = Locks::new(Prefixed::new(Arc::clone(&store), "a/").unwrap()).unwrap();
        let b = Locks::new(Prefixed::new(Arc::clone(&store), "b/").unwrap()).unwrap();
        let bare = Locks::new(store).unwrap();
        let _a = a.mutex("x").unwrap().try_lock().await.unwrap().unwrap();
        let _b = b.mutex("x").unwrap().try_lock().await.unwrap().unwrap();
        assert!(bare.mutex("a/x").unwrap().try_lock().await.unwrap().is_none());
        assert_eq!(a.inspect("x").await.unwrap().holders.len(), 1);
    }

    #[tokio::test]
    async fn a_name_that_does_not_fit_behind_its_prefix_is_refused() {
        let locks = Locks::new(Prefixed::new(Memory::new(), "prefix/").unwrap()).unwrap();
        let error = locks.mutex("x".repeat(510)).unwrap().lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Name));
        assert!(Prefixed::new(Memory::new(), "").is_err());
        assert!(Prefixed::new(Memory::new(), &"x".repeat(512)).is_err());
    }
}
