//! The connection of one instance to the store, with a switch: while it is cut, no request of this
//! instance reaches the store. A real service does not need this file.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, Clock, DynBackend, Error, ErrorKind,
    Grant, Guarantees, LockName, LockState, Released, Renewal, Renewed, StoreEvents,
};

#[derive(Debug)]
pub(crate) struct Link {
    inner: DynBackend,
    cut: AtomicBool,
}

impl Link {
    pub(crate) fn new(inner: DynBackend) -> Arc<Self> {
        Arc::new(Self { inner, cut: AtomicBool::new(false) })
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, SeqCst);
    }

    pub(crate) fn restore(&self) {
        self.cut.store(false, SeqCst);
    }

    fn reach(&self) -> Result<(), Error> {
        match self.cut.load(SeqCst) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Unavailable, "the link is cut: restore it")),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Link {
    fn store(&self) -> &str {
        self.inner.store()
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn shard(&self, name: &LockName) -> u32 {
        self.inner.shard(name)
    }
    fn longest_lease(&self) -> Duration {
        self.inner.longest_lease()
    }
    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        self.inner.check_lease(lease)
    }
    fn response_timeout(&self) -> Duration {
        self.inner.response_timeout()
    }
    fn events(&self) -> Option<StoreEvents> {
        self.inner.events()
    }
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        match self.reach() {
            Ok(()) => self.inner.acquire(request),
            Err(cut) => Answer::ready(Err(cut)),
        }
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.reach()?;
        self.inner.granted(request).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.reach()?;
        self.inner.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        match self.reach() {
            Ok(()) => self.inner.release(claim),
            Err(cut) => Answer::ready(Err(cut)),
        }
    }
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.reach()?;
        self.inner.inspect(name).await
    }
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        match self.reach() {
            Ok(()) => self.inner.acquire_all(requests),
            Err(cut) => Some(Answer::ready(Err(cut))),
        }
    }
    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }
}
