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
