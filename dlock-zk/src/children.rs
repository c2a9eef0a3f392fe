//! Lists of directories, and one for many.
//!
//! A list names every claim of a lock, and each claim that comes, or that may be next, wants one. So
//! when thousands come at once, thousands of lists with thousands of names each would stand in the
//! way of all else that the server has to say, to other clients as well. Only a few lists of a
//! directory are on their way at a time; whoever wants one meanwhile shares the next.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::watch};
use zookeeper_client::{Client, Error as ZkError};

use crate::queue::Queue;

/// How many lists of a directory are on their way at a time, of those that nobody shares.
const TOGETHER: usize = 4;

/// Tells several of a list that they wait for.
type Tell = watch::Sender<Option<Result<Arc<Queue>, ZkError>>>;

/// The lists of a session that are on their way.
pub(crate) struct Lists {
    client: Client,
    runtime: Handle,
    dirs: Mutex<HashMap<String, Dir>>,
}

#[derive(Default)]
struct Dir {
    /// So many are on their way.
    sent: usize,
    /// The one that is sent when the first of them is there, if somebody waits for it.
    next: Option<Tell>,
}

impl Lists {
    pub(crate) fn new(client: Client, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { client, runtime, dirs: Mutex::default() })
    }

    /// The claims in a directory, by a list that is sent after this was first polled: it holds
    /// whatever this session has asked for before.
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
            // The runtime has gone, and with it the session.
            _ => Err(ZkError::ClientClosed),
        }
    }

    /// One list is there: who waits for the next one, which is to be sent.
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

    /// Sends lists for as long as somebody waits for the next one.
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

/// A list that is on its way. When it is there, or nobody wants it any more, the next one goes.
struct Sent<'a> {
    lists: &'a Arc<Lists>,
    dir: &'a str,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let Some(tell) = self.lists.next(self.dir) else { return };
        let (lists, dir) = (Arc::clone(self.lists), self.dir.to_owned());
        // Those who wait only listen, and hold nobody else up by going away.
        self.lists.runtime.spawn(async move { lists.serve(&dir, tell).await });
    }
}
