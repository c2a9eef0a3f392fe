//! The events of `Traced`, and the data that it never logs.
//!
//! These tests have a separate binary: `tracing` caches for the whole process whether an event has
//! a subscriber, and a thread without one would disable the event for all.

#[path = "../core/support.rs"]
mod support;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use dlock_core::*;
use parking_lot::Mutex;
use support::{Faulty, secs};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Collects spans and events as text.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<String>>>, Arc<AtomicU64>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Collected {
    fn push(&self, what: &str, record: impl FnOnce(&mut Fields)) {
        let mut fields = Fields(what.to_owned());
        record(&mut fields);
        self.0.lock().push(fields.0);
    }

    fn text(&self) -> String {
        self.0.lock().join("\n")
    }
}

impl Subscriber for Collected {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dlock")
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        self.push(attributes.metadata().name(), |fields| attributes.record(fields));
        span::Id::from_u64(1 + self.1.fetch_add(1, Ordering::Relaxed))
    }
    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        self.push(&format!("#{}", span.into_u64()), |fields| values.record(fields));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        self.push(event.metadata().level().as_str(), |fields| event.record(fields));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn verbs_have_spans_with_outcomes_and_no_whole_claim() {
    let collected = Collected::default();
    let _guard = tracing::subscriber::set_default(collected.clone());
    let store = Faulty::new();
    let locks = Locks::new(Traced::new(Arc::clone(&store) as DynBackend)).unwrap();
    let guard = locks.mutex("a/b").unwrap().lock().await.unwrap();
    let token = guard.token();
    let claim = locks.inspect("a/b").await.unwrap().holders[0].claim.to_string();
    assert!(locks.fair("a/b").unwrap().try_lock().await.unwrap().is_none());
    tokio::time::sleep(secs(11)).await;
    guard.release().await.unwrap();

    let text = collected.text();
    for expected in [
        "dlock.acquire backend=\"memory:",
        "lock.name=a/b",
        "outcome=\"granted\"",
        &format!("token={token}"),
        "outcome=\"busy\"",
        "dlock.renew backend=\"memory:",
        "claims=1",
        "dlock.inspect",
        "dlock.release",
        "outcome=\"released\"",
        &claim[..8],
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    assert!(!text.contains(&claim), "a claim that can release the lock is shown");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_an_event() {
    let collected = Collected::default();
    let _guard = tracing::subscriber::set_default(collected.clone());
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    store.renew_fails.store(true, Ordering::SeqCst);
    guard.lost().await;
    let text = collected.text();
    assert!(text.contains("WARN") && text.contains("lock lost"), "{text}");
    assert!(text.contains("renewal failed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_waited_for_is_an_event_with_the_wait() {
    let collected = Collected::default();
    let _guard = tracing::subscriber::set_default(collected.clone());
    let store = Faulty::new();
    let locks = [(); 2].map(|()| Locks::new(store.clone()).unwrap());
    let guard = locks[0].mutex("n").unwrap().lock().await.unwrap();
    assert!(!collected.text().contains("acquired after a wait"), "{}", collected.text());
    let late = async {
        tokio::time::sleep(secs(7)).await;
        guard.release().await.unwrap();
    };
    let mutex = locks[1].mutex("n").unwrap();
    let (next, ()) = tokio::join!(mutex.lock(), late);
    let text = collected.text();
    for expected in [
        "message=lock acquired after a wait",
        "lock.name=n",
        "backend=\"memory:",
        &format!("token={}", next.unwrap().token()),
        "wait=7s",
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
}
