//! Records what a program reports to its tracing subscriber.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// Collects all spans and events of this thread as text, at every level.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<String>>, Arc<AtomicU64>);

struct Line(String);

impl Heard {
    /// Records until the returned guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        let heard = Self::default();
        let guard = tracing::subscriber::set_default(heard.clone());
        (heard, guard)
    }

    /// Returns what was recorded so far: a line for each span and event.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }

    fn push(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let (level, target, name) = (metadata.level(), metadata.target(), metadata.name());
        let mut line = Line(format!("{level} {target} {name}"));
        record(&mut line);
        let mut text = self.0.lock();
        text.push_str(&line.0);
        text.push('\n');
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        self.push(attributes.metadata(), |line| attributes.record(line));
        span::Id::from_u64(1 + self.1.fetch_add(1, Ordering::Relaxed))
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        self.0.lock().push_str(&line.0);
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        self.push(event.metadata(), |line| event.record(line));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
