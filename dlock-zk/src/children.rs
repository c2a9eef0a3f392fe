//! Lists of directories, and one list for many callers.
//!
//! A list has the names of all claims of a lock. Each new claim, and each claim that may be next,
//! needs one. With thousands of claims at once, thousands of lists with thousands of names each
//! would delay all other answers of the server, including those to other clients. So only a few
//! lists of a directory are under way at a time, and callers that need one meanwhile share the
//! next.
//!
//! A caller never shares a list that was sent before its call: that one could lack its own node.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::watch};
use zookeeper_client::{Client, Error as ZkError};

use crate::queue::Queue;

/// The number of unshared lists of a directory that are under way at a time.
const TOGETHER: usize = 4;

/// Sends a shared list to its callers.
type Tell = watch::Sender<Option<Result<Arc<Queue>, ZkError>>>;

/// The lists of a session that are under way.
pub(crate) struct Lists {
    client: Client,
    runtime: Handle,
    dirs: Mutex<HashMap<String, Dir>>,
}

#[derive(Default)]
struct Dir {
    /// The number under way.
    sent: usize,
    /// The shared list. It is sent when the first of these is answered, if a caller needs it.
    next: Option<Tell>,
}

impl Lists {
    pub(crate) fn new(client: Client, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { client, runtime, dirs: Mutex::default() })
    }

    /// Returns the claims in a directory, by a list that is sent after the first poll of this
    /// future. So it shows the effect of all earlier requests of this session.
    pub(crate) async fn queue(self: &Arc<Self>, dir: &str) -> Result<Arc<Queue>, ZkError> {
        let mut shared = {
            let mut dirs = self.dirs.lock();
            let known = dirs.entry(dir.to_owned()).or_default();
            if known.sent < TOGETHER {
                known.sent += 1;
                None
            } else {
                Some(known.next.get_or_insert_with(|| watch::Sender::new(None)).subscribe())
            }
        };
        let Some(shared) = &mut shared else {
            let _sent = Sent { lists: self, dir };
            return self.read(dir).await;
        };
        match shared.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(answer)) => answer.clone(),
            // The runtime has ended, and with it the session.
            _ => Err(ZkError::ClientClosed),
        }
    }

    /// Records that a list was answered. Returns the callers of the next one, which is sent now.
    fn next(&self, dir: &str) -> Option<Tell> {
        let mut dirs = self.dirs.lock();
        let known = dirs.get_mut(dir)?;
        let next = known.next.take();
        if next.is_none() {
            known.sent -= 1;
            if known.sent == 0 {
                dirs.remove(dir);
            }
        }
        next
    }

    /// Sends lists for as long as callers need another one.
    async fn serve(&self, dir: &str, first: Tell) {
        let limit = self.client.session_timeout();
        let mut next = Some(first);
        while let Some(tell) = next {
            let answer = tokio::time::timeout(limit, self.read(dir)).await;
            tell.send_replace(Some(answer.unwrap_or(Err(ZkError::Timeout))));
            next = self.next(dir);
        }
    }

    async fn read(&self, dir: &str) -> Result<Arc<Queue>, ZkError> {
        self.client.list_children(dir).await.map(|children| Arc::new(Queue::of(children)))
    }
}

/// A list that is under way. Dropping this, with or without an answer, sends the next one.
struct Sent<'a> {
    lists: &'a Arc<Lists>,
    dir: &'a str,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let Some(tell) = self.lists.next(self.dir) else { return };
        let (lists, dir) = (Arc::clone(self.lists), self.dir.to_owned());
        // A task sends it, and callers only listen. So a caller that stops waiting does not delay
        // the others.
        self.lists.runtime.spawn(async move { lists.serve(&dir, tell).await });
    }
}
