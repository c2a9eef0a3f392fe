//! One claim of this client, from the first request to the end of its node.
//!
//! # Concurrency
//!
//! The task that creates, renames or deletes the node holds `stage` until the outcome is certain,
//! across awaits. So a release never looks for a node whose creation is under way, and the client
//! always knows the name of its node. The locks of the other fields are held only for a moment, and
//! taken after `stage`.

use std::{ops::Deref, pin::Pin, sync::Arc};

use dlock_core::{AcquireRequest, Mode, Note, session::Life};
use parking_lot::Mutex;
use zookeeper_client::WatchedEvent;

use crate::{node::TOKENS, queue::Watch, record::Record};

/// A claim of a session.
pub(crate) struct OwnClaim {
    life: Life,
    pub(crate) note: Option<Note>,
    /// The state of the node.
    pub(crate) stage: tokio::sync::Mutex<Stage>,
    /// The watch of its own node, left from the time when it waited.
    watch: Mutex<Option<OwnWatch>>,
}

/// The state of a claim's node, as far as this client knows.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The node was not created yet.
    New,
    /// A creation that wrote to this epoch was not answered. The node may exist, or be created
    /// later.
    Doubtful(Option<Arc<str>>),
    /// The node exists.
    There(Spot),
    /// The node was deleted.
    Gone,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    /// The lock's directory.
    pub(crate) dir: String,
    /// The node's name in it.
    pub(crate) child: String,
    /// The zxid of the claim's creation, which is its time in ZooKeeper's order.
    pub(crate) czxid: i64,
    /// The mode of the claim.
    pub(crate) mode: Mode,
    /// Its number is not in order, so the directory should be removed when it is empty.
    pub(crate) worn: bool,
    /// It may have another name, since a renaming was not answered.
    pub(crate) is_renamed: bool,
    /// The node to watch, according to the last list.
    pub(crate) watch: Option<Watch>,
}

/// A watch of the claim's own node, and the name that the node had.
///
/// It is kept until the node changes. If a watcher is dropped before, the driver makes the server
/// remove the watch. That would cost one more request for each grant, and two for each release,
/// although the deletion ends the watch anyway.
pub(crate) struct OwnWatch {
    pub(crate) event: Pin<Box<dyn Future<Output = Option<WatchedEvent>> + Send>>,
    pub(crate) child: String,
}

impl OwnClaim {
    pub(crate) fn new(request: &AcquireRequest) -> Self {
        Self {
            life: Life::new(request, TOKENS),
            note: request.note.clone(),
            stage: tokio::sync::Mutex::new(Stage::New),
            watch: Mutex::default(),
        }
    }

    /// Keeps the watch of its node for the next caller that needs it.
    pub(crate) fn keep_watch(&self, watch: OwnWatch) {
        *self.watch.lock() = Some(watch);
    }

    pub(crate) fn take_watch(&self) -> Option<OwnWatch> {
        self.watch.lock().take()
    }

    /// Returns whether it holds or has held the lock exclusively.
    pub(crate) fn was_alone(&self) -> bool {
        self.was_granted() && self.mode() == Mode::Exclusive
    }

    /// Returns the record of its node, without a mark.
    pub(crate) fn record(&self) -> Record {
        Record::of(self.lease(), self.note.clone())
    }
}

impl Deref for OwnClaim {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.life
    }
}

impl Spot {
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.dir, self.child)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::{Instant, LockName};

    use super::*;
    use crate::node::token;

    #[test]
    fn tokens_of_two_nodes_do_not_meet() {
        let (a, b) = (token(7).unwrap(), token(8).unwrap());
        assert_eq!(b.get() - a.get(), u64::from(TOKENS));
        let (name, lease) = (LockName::new("x").unwrap(), Duration::from_secs(1));
        let request = AcquireRequest::new(name, Mode::Exclusive, lease).with_tokens(TOKENS + 1);
        let claim = OwnClaim::new(&request);
        let (grant, _) = claim.grant(a, Instant::from_nanos(0)).unwrap();
        assert_eq!((grant.token, grant.tokens), (a, TOKENS));
    }
}
