//! The verb, the lock and the store in the errors of a backend, which the core adds.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use dlock_core::*;

/// A store that refuses all requests while its switch is on, with errors without context.
#[derive(Debug)]
struct Refusing {
    inner: Arc<Memory>,
    refuses: AtomicBool,
}

impl Refusing {
    fn check(&self) -> Result<(), Error> {
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(Error::config(ConfigIssue::Access, "refused")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Backend for Refusing {
    fn store(&self) -> &str {
        "refusing:"
    }
    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }
    fn clock(&self) -> Clock {
        self.inner.clock()
    }
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        self.check()
            .map_or_else(|error| Answer::ready(Err(error)), |()| self.inner.acquire(request))
    }
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.refuses.store(true, Ordering::SeqCst);
        self.check()?;
        self.inner.granted(request).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.check()?;
        self.inner.renew(renewals).await
    }
    fn release(&self, claim: &Claim) -> Answer<Released> {
        self.check().map_or_else(|error| Answer::ready(Err(error)), |()| self.inner.release(claim))
    }
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.check()?;
        self.inner.inspect(name).await
    }
    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        match self.check() {
            Ok(()) => self.inner.acquire_all(requests),
            Err(error) => Some(Answer::ready(Err(error))),
        }
    }
}

#[async_trait]
impl Admin for Refusing {
    async fn list(&self, _: &str, _: usize) -> Result<Vec<LockName>, Error> {
        self.check().map(|()| Vec::new())
    }
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.check().map(|()| Vec::new())
    }
    async fn raise_tokens(&self, _: &LockName, _: FencingToken) -> Result<(), Error> {
        self.check()
    }
}

/// Returns locks over a new store, and the switch that makes it refuse requests.
fn locks() -> (Locks, Arc<Refusing>) {
    let store = Arc::new(Refusing { inner: Memory::new(), refuses: AtomicBool::new(false) });
    (Locks::new(store.clone()).expect("locks"), store)
}

#[track_caller]
fn says<T>(answer: Result<T, Error>, text: &str) {
    let error = answer.err().expect("an error");
    assert_eq!(error.to_string(), format!("{text}: refused"));
}

#[tokio::test]
async fn errors_of_a_backend_name_verb_lock_and_store() {
    let (locks, store) = locks();
    let guard = locks.mutex("held").unwrap().lock().await.unwrap();
    let mut writer = locks.rw("shared").unwrap().write().lock().await.unwrap();
    store.refuses.store(true, Ordering::SeqCst);
    says(locks.mutex("a").unwrap().try_lock().await, r#"acquire of lock "a" on refusing:"#);
    says(locks.mutex("a").unwrap().lock().await, r#"acquire of lock "a" on refusing:"#);
    let both = locks.multi(["a", "b"]).unwrap();
    says(both.try_lock().await, r#"acquire of lock "a" on refusing:"#);
    says(writer.downgrade().await, r#"renew of lock "shared" on refusing:"#);
    says(guard.release().await, r#"release of lock "held" on refusing:"#);
    says(locks.inspect("a").await, r#"inspect of lock "a" on refusing:"#);
    says(locks.force_release("a").await, r#"inspect of lock "a" on refusing:"#);
    says(locks.election("a").unwrap().leader().await, r#"inspect of lock "a" on refusing:"#);
    says(locks.list("", 1).await, "list on refusing:");
    says(locks.examine().await, "examine on refusing:");
    let above = FencingToken::new(7).unwrap();
    says(locks.raise_tokens("a", above).await, r#"raise_tokens of lock "a" on refusing:"#);
}

#[tokio::test]
async fn the_error_of_a_wait_names_verb_lock_and_store() {
    let (locks, _) = locks();
    let _held = locks.fair("a").unwrap().lock().await.unwrap();
    says(locks.fair("a").unwrap().lock().await, r#"acquire of lock "a" on refusing:"#);
}
