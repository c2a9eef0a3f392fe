//! Owners of reentrant locks.

use std::{fmt, future::Future};

use rand::random;

/// Who holds a reentrant lock: a value that the program passes on, never a thread or a task.
///
/// A task moves between threads, and one task may act for two callers, so neither says who is
/// entitled to re-enter. Clones are the same owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(u128);

tokio::task_local! {
    static CURRENT: Owner;
}

impl Owner {
    /// A new owner, unlike every other.
    #[expect(clippy::new_without_default, reason = "each call makes another owner")]
    pub fn new() -> Self {
        Self(random())
    }

    /// Runs `work` with this owner as its [`current`](Self::current) one. Tasks that `work`
    /// spawns do not inherit it.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// The owner of the innermost [`scope`](Self::scope) around this code, if there is one.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|owner| *owner).ok()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:032x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn current_is_the_innermost_scope_and_is_not_inherited() {
        let (outer, inner) = (Owner::new(), Owner::new());
        assert_ne!(outer, inner);
        assert_eq!(Owner::current(), None);
        outer
            .scope(async move {
                assert_eq!(Owner::current(), Some(outer));
                inner.scope(async move { assert_eq!(Owner::current(), Some(inner)) }).await;
                #[expect(clippy::disallowed_methods, reason = "this is what the test is about")]
                let spawned = tokio::spawn(async { Owner::current() });
                assert_eq!(spawned.await.unwrap(), None);
            })
            .await;
    }
}
