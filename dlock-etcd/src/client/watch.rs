//! All watches of a connection on one stream.
//!
//! A watch is set from now on, not from a revision: one from a revision that exists is put aside by
//! the member and looked at every 100 ms. So what happened before it was set is not seen: read once
//! after [`Seen::Created`]. When the stream breaks, all its watches end.
//!
//! "Now" is the member's own state, which may be far behind that of the others. So a watch can be
//! sent changes that are older than the claim that waits for them, and since names of keys are used
//! again, such a change may belong to an earlier key of the same name. Therefore each watch has a
//! revision, and changes up to that are dropped here, before anybody sees them.
//!
//! The client chooses the ids. A member answers requests in their order, and one that it refuses
//! with the id -1, so `asked` keeps the order. It is changed under the lock that is held while the
//! request is put into the stream, or two requests could be in different orders.
//!
//! A stream keeps its token, and new watches on it are refused when the token has expired, while
//! the old watches continue. So after a login the next watch opens another stream, and the old one
//! lives as long as its watches.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use dlock_core::Certainty::NotApplied;
use futures_util::stream;
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::sync::mpsc;

use super::{
    calls::{Calls, Token},
    failure::{Failure, FailureKind::Disconnected},
    messages::{FilterType, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse},
};

/// A message of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The member has set the watch: each change after this revision will be seen.
    Created { revision: i64 },
    /// Keys have changed after the revision of the watch, the last one at this revision. A
    /// serializable read at the same member may show the state before: read until the answer's
    /// revision is at least this one.
    Changed { revision: i64 },
}

/// A watch. It ends on the server when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    id: i64,
    stream: Arc<WatchStream>,
}

/// A stream with its watches.
#[derive(Debug)]
pub(super) struct WatchStream {
    /// The number of the token of the stream.
    token: u64,
    requests: mpsc::UnboundedSender<WatchRequest>,
    state: Mutex<Watchers>,
}

#[derive(Debug, Default)]
struct Watchers {
    watchers: HashMap<i64, Watcher>,
    last_id: i64,
    /// The requests that are not answered, in their order.
    asked: VecDeque<i64>,
    /// Why the stream has ended.
    end: Option<Failure>,
}

#[derive(Debug, Default)]
struct Watcher {
    /// Changes up to this revision do not count.
    after: i64,
    /// The revision of the answer to the request, until it is read.
    created: Option<i64>,
    /// The revision of the last change, until it is read. Each reader looks at the state of the
    /// store then, so the changes before that are of no interest.
    changed: Option<i64>,
    /// Why the watch has ended.
    end: Option<Failure>,
    reader: Option<Waker>,
}

impl WatchStream {
    /// Opens a stream. The task ends with the connection, or after the last watch is gone.
    pub(super) fn open(calls: Arc<Calls>, ended: tokio::sync::watch::Receiver<()>) -> Arc<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "it holds no more than two requests for each watch of this connection, and is \
                      emptied into the connection"
        )]
        let (requests, queue) = mpsc::unbounded_channel();
        let token = calls.token();
        let stream = Arc::new(Self { token: token.number, requests, state: Mutex::default() });
        let task = run(Arc::downgrade(&stream), calls, token, queue, ended);
        tokio::runtime::Handle::current().spawn(task);
        stream
    }

    /// Whether new watches can be set on it with the token of this number.
    pub(super) fn is_open(&self, token: u64) -> bool {
        self.token == token && self.state.lock().end.is_none()
    }

    /// Sets a watch for changes after this revision.
    pub(super) fn watch(
        self: Arc<Self>,
        key: Bytes,
        range_end: Bytes,
        without: Option<FilterType>,
        after: i64,
    ) -> Watch {
        let filters = without.into_iter().map(i32::from).collect();
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = state.last_id;
        state.watchers.insert(id, Watcher { after, ..Watcher::default() });
        state.asked.push_back(id);
        let request = WatchCreateRequest { key, range_end, filters, watch_id: id };
        // If the stream has ended, the watch ends with it.
        let _ = self.requests.send(WatchRequest { create: Some(request), cancel: None });
        drop(state);
        Watch { id, stream: self }
    }

    /// Takes a message of the server.
    fn take(&self, message: WatchResponse) {
        let state = &mut *self.state.lock();
        let mut id = message.watch_id;
        if message.created {
            if id < 0 || state.asked.front() == Some(&id) {
                id = state.asked.pop_front().unwrap_or(id);
            } else if let Some(at) = state.asked.iter().position(|asked| *asked == id) {
                state.asked.remove(at);
            } else {
                // A gRPC proxy numbers watches itself. Its events would be taken for those of others.
                state.end_all(&Failure::proxy());
                return;
            }
        }
        let Some(watcher) = state.watchers.get_mut(&id) else { return };
        if message.canceled {
            let compacted = message.compact_revision != 0;
            watcher.end(Failure::of_watch(&message.cancel_reason, compacted));
            return;
        }
        if message.created {
            watcher.created = Some(message.header.map_or(0, |header| header.revision));
        }
        let revisions = message.events.iter().filter_map(|event| event.kv.as_ref());
        let after = watcher.after;
        let changes = revisions.map(|kv| kv.mod_revision).filter(|at| *at > after);
        watcher.changed = changes.max().or(watcher.changed);
        watcher.wake();
    }

    fn cancel(&self, watch_id: i64) {
        let cancel = Some(WatchCancelRequest { watch_id });
        // If the stream has ended, so has the watch.
        let _ = self.requests.send(WatchRequest { create: None, cancel });
    }

    /// Ends all watches.
    fn end(&self, failure: Failure) {
        self.state.lock().end_all(&failure);
    }
}

impl Watchers {
    fn end_all(&mut self, failure: &Failure) {
        for watcher in self.watchers.values_mut() {
            if watcher.end.is_none() {
                watcher.end(failure.clone());
            }
        }
        self.end.get_or_insert_with(|| failure.clone());
    }
}

impl Watcher {
    fn end(&mut self, failure: Failure) {
        self.end = Some(failure);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Watch {
    /// Waits for the next message: first [`Seen::Created`], then changes. Several changes since the
    /// last call are one. An error is the end: the connection or the stream has broken
    /// (`Disconnected`), the watch was refused (`Denied`, `Token`), or the server could not follow
    /// (`Compacted`). Each further call returns the error again: set a new watch. After `Denied` and
    /// `Token` send a call first; it logs in again if the token has expired.
    ///
    /// # Cancel safety
    /// If the future is dropped, no message is lost.
    pub(crate) async fn next(&mut self) -> Result<Seen, Failure> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Result<Seen, Failure>> {
        let state = &mut *self.stream.state.lock();
        let end = state.end.as_ref();
        let Some(watcher) = state.watchers.get_mut(&self.id) else {
            return Poll::Ready(Err(closed()));
        };
        if let Some(revision) = watcher.created.take() {
            return Poll::Ready(Ok(Seen::Created { revision }));
        }
        if let Some(revision) = watcher.changed.take() {
            return Poll::Ready(Ok(Seen::Changed { revision }));
        }
        match watcher.end.as_ref().or(end) {
            Some(failure) => Poll::Ready(Err(failure.clone())),
            None => {
                watcher.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watcher = self.stream.state.lock().watchers.remove(&self.id);
        if watcher.is_some_and(|watcher| watcher.end.is_none()) {
            self.stream.cancel(self.id);
        }
    }
}

/// Reads the messages of a stream until it ends, or until nobody has a watch on it any more.
async fn run(
    stream: Weak<WatchStream>,
    calls: Arc<Calls>,
    token: Token,
    mut queue: mpsc::UnboundedReceiver<WatchRequest>,
    mut ended: tokio::sync::watch::Receiver<()>,
) {
    let reading = async {
        let queue = stream::poll_fn(move |context| queue.poll_recv(context));
        let mut answers = calls.stream("/etcdserverpb.Watch/Watch", token, queue).await?;
        while let Some(message) = answers.message().await? {
            match stream.upgrade() {
                Some(stream) => stream.take(message),
                None => break,
            }
        }
        Ok::<(), tonic::Status>(())
    };
    let result = tokio::select! {
        result = reading => result.map_err(Failure::from),
        _ = ended.changed() => Ok(()),
    };
    if let Some(stream) = stream.upgrade() {
        stream.end(result.err().unwrap_or_else(closed));
    }
}

fn closed() -> Failure {
    Failure::new(Disconnected, NotApplied, "the stream of watches has ended")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Event, EventKey, FailureKind, Header},
        *,
    };

    fn stream() -> (Arc<WatchStream>, mpsc::UnboundedReceiver<WatchRequest>) {
        #[expect(clippy::disallowed_methods, reason = "a test sends few requests")]
        let (requests, queue) = mpsc::unbounded_channel();
        (Arc::new(WatchStream { token: 0, requests, state: Mutex::default() }), queue)
    }

    fn watch(stream: &Arc<WatchStream>) -> Watch {
        watch_after(stream, 0)
    }

    fn watch_after(stream: &Arc<WatchStream>, after: i64) -> Watch {
        Arc::clone(stream).watch(Bytes::from_static(b"k"), Bytes::new(), None, after)
    }

    fn seen(watch: &mut Watch) -> Option<Result<Seen, FailureKind>> {
        match watch.poll_next(&Context::from_waker(Waker::noop())) {
            Poll::Ready(seen) => Some(seen.map_err(|failure| failure.kind())),
            Poll::Pending => None,
        }
    }

    fn created(watch_id: i64, revision: i64) -> WatchResponse {
        let header = Some(Header { revision, ..Header::default() });
        WatchResponse { watch_id, created: true, header, ..WatchResponse::default() }
    }

    fn refused(reason: &str) -> WatchResponse {
        WatchResponse { canceled: true, cancel_reason: reason.to_owned(), ..created(-1, 5) }
    }

    fn changed(watch_id: i64, mod_revision: i64) -> WatchResponse {
        let events = vec![Event { kv: Some(EventKey { mod_revision }) }];
        WatchResponse { watch_id, events, ..WatchResponse::default() }
    }

    fn change(revision: i64) -> Option<Result<Seen, FailureKind>> {
        Some(Ok(Seen::Changed { revision }))
    }

    #[test]
    fn a_refused_watch_is_found_by_the_order_of_requests() {
        let (stream, _queue) = stream();
        let [mut a, mut b, mut c] = [(); 3].map(|()| watch(&stream));
        stream.take(created(a.id, 5));
        stream.take(refused("etcdserver: permission denied"));
        stream.take(created(c.id, 6));
        assert_eq!(seen(&mut a), Some(Ok(Seen::Created { revision: 5 })));
        assert_eq!(seen(&mut b), Some(Err(FailureKind::Denied)));
        assert_eq!(seen(&mut b), Some(Err(FailureKind::Denied)), "an end stays");
        assert_eq!(seen(&mut c), Some(Ok(Seen::Created { revision: 6 })));
        assert_eq!(seen(&mut a), None);
        stream.take(changed(c.id, 7));
        assert_eq!(seen(&mut c), change(7));
    }

    #[test]
    fn a_refusal_of_a_watch_that_was_dropped_meets_no_other() {
        let (stream, mut queue) = stream();
        let (a, mut b) = (watch(&stream), watch(&stream));
        let id = a.id;
        drop(a);
        stream.take(refused("etcdserver: permission denied"));
        stream.take(created(b.id, 5));
        assert_eq!(seen(&mut b), Some(Ok(Seen::Created { revision: 5 })));
        let orders: Vec<_> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
        assert_eq!(orders.len(), 3);
        assert_eq!(orders[2].cancel, Some(WatchCancelRequest { watch_id: id }));
    }

    #[test]
    fn an_unread_message_survives_the_end_of_the_stream() {
        let (stream, _queue) = stream();
        let mut a = watch(&stream);
        stream.take(created(a.id, 5));
        stream.take(changed(a.id, 6));
        stream.end(closed());
        assert_eq!(seen(&mut a), Some(Ok(Seen::Created { revision: 5 })));
        assert_eq!(seen(&mut a), change(6));
        assert_eq!(seen(&mut a), Some(Err(Disconnected)));
        assert!(!stream.is_open(0));
        assert_eq!(seen(&mut watch(&stream)), Some(Err(Disconnected)), "set after the end");
    }

    #[test]
    fn changes_that_nobody_has_read_become_one() {
        let (stream, _queue) = stream();
        let (mut a, mut b) = (watch(&stream), watch(&stream));
        for revision in 1..100 {
            stream.take(changed(a.id, revision));
        }
        stream.take(changed(b.id, 100));
        assert_eq!(seen(&mut a), change(99));
        assert_eq!(seen(&mut a), None);
        assert_eq!(seen(&mut b), change(100));
    }

    /// A member that lags behind sends them.
    #[test]
    fn changes_up_to_the_revision_of_a_watch_are_dropped() {
        let (stream, _queue) = stream();
        let mut a = watch_after(&stream, 7);
        stream.take(created(a.id, 3));
        for revision in 4..=7 {
            stream.take(changed(a.id, revision));
        }
        assert_eq!(seen(&mut a), Some(Ok(Seen::Created { revision: 3 })));
        assert_eq!(seen(&mut a), None);
        stream.take(changed(a.id, 8));
        assert_eq!(seen(&mut a), change(8));
    }

    #[test]
    fn a_proxy_that_numbers_watches_itself_is_noticed() {
        let (stream, _queue) = stream();
        let mut a = watch(&stream);
        stream.take(created(0, 3));
        assert_eq!(seen(&mut a), Some(Err(FailureKind::Proxy)));
        assert!(!stream.is_open(0));
    }

    #[test]
    fn a_stream_with_an_old_token_takes_no_new_watches() {
        let (stream, _queue) = stream();
        assert!(stream.is_open(0));
        assert!(!stream.is_open(1));
    }
}
