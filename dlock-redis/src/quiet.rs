//! The quiet path: names that nobody else has taken since this client did.
//!
//! A script that takes a free lock reserves a few tokens more than it gives out. As long as F
//! still shows the end of that block, nobody was granted the lock since, so the client's next
//! acquire needs no script: `SET H claim?token/end NX PX lease`, with a note behind the end if there
//! is one, and `GET F`, back to back. If the first wins and the second shows the same end, the lock
//! is the claim's, by the next of the reserved tokens: no grant can come between the two, since H is
//! held. Anything else goes the long way, with the same claim: by the mark `?` and the end behind
//! it, a script sees that nobody has looked at F for this claim yet, and does.
//!
//! It holds for one connection only: after a failover F may be older than a grant that got lost
//! with the old master. At most one acquire of a name is under way like this, so that tokens are
//! used in the order in which they were reserved.

use std::{fmt::Write, sync::Arc};

use dlock_core::{AcquireRequest, ClaimId, FencingToken, LockName, Note};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::keys::Keys;

/// How many tokens are reserved beyond the granted ones. The server's clock counts microseconds
/// and a cycle takes longer than one, so tokens don't run ahead of it by more than this.
pub(crate) const SPARE: u32 = 256;
/// How many names are remembered.
const MOST: usize = 8192;
/// The longest that H holds but for a note: a claim, two numbers, and what stands between.
const LONGEST: usize = 32 + 2 * 20 + 3;

/// Names that this client was the last to take, as far as it knows.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<HashMap<LockName, Last>>);

/// The last grant of a name.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub(crate) keys: Arc<Keys>,
    claim: ClaimId,
    note: Option<Note>,
    token: FencingToken,
    /// The end of the block.
    end: u64,
    epoch: u64,
    /// Without a script.
    quietly: bool,
}

impl Last {
    /// A grant of one token in this connection, with more reserved.
    pub(crate) fn new(
        keys: Arc<Keys>,
        request: &AcquireRequest,
        token: FencingToken,
        epoch: u64,
    ) -> Self {
        let (claim, note) = (request.claim, request.note.clone());
        let end = token.get() + u64::from(SPARE);
        Self { keys, claim, note, token, end, epoch, quietly: false }
    }

    /// The next grant, if a token is left for it.
    pub(crate) fn next(&self, request: &AcquireRequest) -> Option<Self> {
        let token = FencingToken::new(self.token.get() + 1).ok()?;
        let left = token.get() <= self.end;
        let (claim, note) = (request.claim, request.note.clone());
        left.then(|| Self { claim, note, token, quietly: true, ..self.clone() })
    }

    pub(crate) const fn token(&self) -> FencingToken {
        self.token
    }

    /// What H holds while this is the last grant.
    pub(crate) fn holds(&self) -> String {
        let (claim, token) = (self.claim, self.token);
        let note = self.note.as_ref().map_or("", Note::as_str);
        let mut holds = String::with_capacity(LONGEST + note.len());
        // To write into a string does not fail.
        let _ = match self.quietly {
            true => write!(holds, "{claim}?{token}/{}", self.end),
            false => write!(holds, "{claim}:{token}"),
        };
        if !note.is_empty() {
            holds.push(' ');
            holds += note;
        }
        holds
    }

    /// What F shows while this is the last grant.
    pub(crate) fn shows(&self) -> String {
        self.end.to_string()
    }
}

impl Quiet {
    /// Takes the last grant of a name out, if it was in this connection.
    pub(crate) fn take(&self, name: &LockName, epoch: u64) -> Option<Last> {
        self.0.lock().remove(name).filter(|last| last.epoch == epoch)
    }

    /// Remembers the last grant of a name.
    pub(crate) fn put(&self, name: &LockName, last: Last) {
        let mut names = self.0.lock();
        // Names that were used once fill it up; those in use come back at once.
        if names.len() >= MOST && !names.contains_key(name) {
            names.clear();
        }
        names.insert(name.clone(), last);
    }

    /// The grant of a claim, if it was the last.
    pub(crate) fn held(&self, name: &LockName, claim: ClaimId) -> Option<Last> {
        self.0.lock().get(name).filter(|last| last.claim == claim).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::{Mode, Queue};

    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    fn request(note: Option<Note>) -> AcquireRequest {
        AcquireRequest {
            name: name("a"),
            claim: ClaimId::random(),
            mode: Mode::Exclusive,
            lease: Duration::from_secs(1),
            queue: Queue::Enqueue,
            tokens: 1,
            note,
        }
    }

    fn last(request: &AcquireRequest) -> Last {
        let keys = Arc::new(Keys::of(&request.name));
        Last::new(keys, request, FencingToken::new(100).unwrap(), 1)
    }

    #[test]
    fn a_reserve_is_for_one_connection_and_one_acquire_at_a_time() {
        let (quiet, request) = (Quiet::default(), request(None));
        quiet.put(&name("a"), last(&request));
        assert!(quiet.take(&name("a"), 2).is_none(), "another connection");
        quiet.put(&name("a"), last(&request));
        let taken = quiet.take(&name("a"), 1).unwrap();
        assert!(quiet.take(&name("a"), 1).is_none(), "it is under way");
        let other = AcquireRequest { claim: ClaimId::random(), ..request };
        let next = taken.next(&other).unwrap();
        assert_eq!(next.holds(), format!("{}?101/{}", other.claim, 100 + SPARE));
        assert_eq!(next.shows(), (100 + u64::from(SPARE)).to_string());
    }

    #[test]
    fn a_reserve_ends() {
        let request = request(None);
        let mut last = last(&request);
        for _ in 0..SPARE {
            last = last.next(&request).unwrap();
        }
        assert_eq!(last.token().get().to_string(), last.shows());
        assert!(last.next(&request).is_none());
    }

    #[test]
    fn only_the_last_claim_is_released_quietly() {
        let (quiet, request) = (Quiet::default(), request(None));
        quiet.put(&name("a"), last(&request));
        let held = quiet.held(&name("a"), request.claim).unwrap();
        assert_eq!(held.holds(), format!("{}:100", request.claim));
        assert!(quiet.held(&name("a"), ClaimId::random()).is_none());
        assert!(quiet.held(&name("b"), request.claim).is_none());
    }

    #[test]
    fn a_note_stands_behind_all_else() {
        let [first, second] = [(); 2].map(|()| request(Note::new("web-3 pid 1").ok()));
        let last = last(&first);
        assert_eq!(last.holds(), format!("{}:100 web-3 pid 1", first.claim));
        let next = last.next(&second).unwrap();
        assert_eq!(next.holds(), format!("{}?101/{} web-3 pid 1", second.claim, 100 + SPARE));
        assert_eq!(next.next(&request(None)).unwrap().holds().split(' ').count(), 1);
    }

    #[test]
    fn names_are_bounded() {
        let quiet = Quiet::default();
        for i in 0..2 * MOST {
            quiet.put(&name(&i.to_string()), last(&request(None)));
        }
        assert!(quiet.0.lock().len() <= MOST);
    }
}
