//! Adds a note to every claim.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Claim, DynBackend, Error, Grant, LockName,
    LockState, Note, Released, Renewal, Renewed,
};

/// Adds a [`Note`] to every claim without one, so that [`inspect`](crate::Locks::inspect) shows
/// people which client made the claim. The store must keep notes: see [`Notes`](crate::Notes).
///
/// ```
/// # mod dlock { pub use dlock_core::*; pub mod backend { pub use dlock_core::*; } }
/// use dlock::{Locks, backend::{Memory, Noted}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
/// let locks = Locks::new(Noted::new(Memory::new(), "web-3 pid 4711".parse()?))?;
/// let guard = locks.mutex("report")?.lock().await?;
/// let state = locks.inspect("report").await?;
/// assert_eq!(state.holders[0].note.as_ref().map(|note| note.as_str()), Some("web-3 pid 4711"));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Noted {
    inner: DynBackend,
    note: Note,
}

impl Noted {
    /// Wraps a backend.
    pub fn new(inner: DynBackend, note: Note) -> Arc<Self> {
        Arc::new(Self { inner, note })
    }

    fn request(&self, request: &AcquireRequest) -> AcquireRequest {
        let note = request.note.clone().unwrap_or_else(|| self.note.clone());
        request.clone().with_note(note)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Noted {
    forward! {
        properties,
        store() -> &str,
        shard(name: &LockName) -> u32,
        release(claim: &Claim) -> Answer<Released>,
        admin() -> Option<&dyn Admin>,
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        self.inner.acquire(&self.request(request))
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.inner.granted(&self.request(request)).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.inner.renew(renewals).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.inner.inspect(name).await
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let requests: Vec<_> = requests.iter().map(|request| self.request(request)).collect();
        self.inner.acquire_all(&requests)
    }
}
