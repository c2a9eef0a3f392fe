//! The quiet path: names that nobody else has taken since this client did.
//!
//! A script that takes a free lock reserves a few tokens more than it gives out. As long as F
//! still shows the end of that block, nobody was granted the lock since, so the client's next
//! acquire needs no script: `SET H claim:token NX PX lease` and `GET F`, back to back. If the first
//! wins and the second shows the same end, the lock is the claim's, by the next of the reserved
//! tokens: no grant can come between the two, since H is held. Anything else goes the long way,
//! with the same claim.
//!
//! It holds for one connection only: after a failover F may be older than a grant that got lost
//! with the old master. At most one acquire of a name is under way like this, so that tokens are
//! used in the order in which they were reserved.

use std::collections::HashMap;

use dlock_core::{FencingToken, LockName};
use parking_lot::Mutex;

/// How many tokens are reserved beyond the granted ones. The server's clock counts microseconds
/// and a cycle takes longer than one, so tokens don't run ahead of it by more than this.
pub(crate) const SPARE: u32 = 256;
/// How many names are remembered.
const MOST: usize = 8192;

/// Tokens in reserve, by name.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<HashMap<LockName, Reserve>>);

/// The rest of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    next: u64,
    end: u64,
    epoch: u64,
}

impl Reserve {
    /// What is left after a grant of one token in this connection.
    pub(crate) const fn after(token: FencingToken, epoch: u64) -> Self {
        Self { next: token.get() + 1, end: token.get() + SPARE as u64, epoch }
    }

    /// The token that the next acquire uses.
    pub(crate) const fn next(self) -> u64 {
        self.next
    }

    /// What F shows as long as the reserve is good.
    pub(crate) const fn end(self) -> u64 {
        self.end
    }

    /// With one token less.
    pub(crate) const fn used(self) -> Self {
        Self { next: self.next + 1, ..self }
    }
}

impl Quiet {
    /// Takes the reserve of a name out, if it is of this connection.
    pub(crate) fn take(&self, name: &LockName, epoch: u64) -> Option<Reserve> {
        self.0.lock().remove(name).filter(|reserve| reserve.epoch == epoch)
    }

    /// Puts a reserve in, unless it is used up.
    pub(crate) fn put(&self, name: &LockName, reserve: Reserve) {
        if reserve.next > reserve.end {
            return;
        }
        let mut names = self.0.lock();
        // Names that were used once fill it up; those in use come back at once.
        if names.len() >= MOST && !names.contains_key(name) {
            names.clear();
        }
        names.insert(name.clone(), reserve);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[test]
    fn a_reserve_is_for_one_connection_and_one_acquire_at_a_time() {
        let quiet = Quiet::default();
        let token = FencingToken::new(100).unwrap();
        quiet.put(&name("a"), Reserve::after(token, 1));
        assert!(quiet.take(&name("a"), 2).is_none(), "another connection");
        quiet.put(&name("a"), Reserve::after(token, 1));
        let reserve = quiet.take(&name("a"), 1).unwrap();
        assert_eq!((reserve.next(), reserve.end()), (101, 100 + u64::from(SPARE)));
        assert!(quiet.take(&name("a"), 1).is_none(), "it is under way");
        quiet.put(&name("a"), reserve.used());
        assert_eq!(quiet.take(&name("a"), 1).unwrap().next(), 102);
    }

    #[test]
    fn an_empty_reserve_is_not_kept_and_names_are_bounded() {
        let quiet = Quiet::default();
        let mut reserve = Reserve::after(FencingToken::new(1).unwrap(), 1);
        for _ in 0..SPARE {
            reserve = reserve.used();
        }
        quiet.put(&name("a"), reserve);
        assert!(quiet.take(&name("a"), 1).is_none());
        for i in 0..2 * MOST {
            quiet.put(&name(&i.to_string()), Reserve::after(FencingToken::new(1).unwrap(), 1));
        }
        assert!(quiet.0.lock().len() <= MOST);
    }
}
