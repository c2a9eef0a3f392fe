//! The metrics of the feature `metrics`, through the [`metrics`](https://docs.rs/metrics) crate:
//! install any exporter of it before the locks are created.
//!
//! | name | type | labels | meaning |
//! |---|---|---|---|
//! | `dlock_acquire_seconds` | histogram | `backend`, `kind`, `outcome` | duration of calls for a lock, local hand-off included |
//! | `dlock_hold_seconds` | histogram | `backend`, `mode` | how long the store's claims were held; a claim that is handed off within the process counts once |
//! | `dlock_contended_total` | counter | `backend`, `queue` | acquisitions that had to wait in a queue; one acquisition can wait in both queues |
//! | `dlock_lost_total` | counter | `backend`, `reason` | locks that were lost |
//! | `dlock_renewals_total` | counter | `backend`, `outcome` | renewals of leases; each claim counts |
//! | `dlock_held` | gauge | `backend` | claims that this process holds now |
//! | `dlock_waiting` | gauge | `backend` | acquisitions that wait now, for a lock or for the store; each claim of a multi-lock counts |
//!
//! | label | values |
//! |---|---|
//! | `backend` | the first part of [`Backend::store`](crate::Backend::store): `memory`, `redis`, `zk`, `etcd`, ... |
//! | `kind` | `mutex` (including reentrant locks), `fair`, `read`, `write`, `semaphore`, `multi`, `election`, `job` |
//! | `mode` | `exclusive`, `shared`, `permits` |
//! | `outcome` of an acquire | `granted`, `busy` (of a try), `timeout`, `error`, `cancelled` (its future was dropped) |
//! | `outcome` of a renewal | `kept`, `lost`, `failed` (no answer; it is retried) |
//! | `queue` | `process`, `store` |
//! | `reason` | `expired`, `revoked`, `clock_step`, `store_reset`: see [`Ended`] |
//!
//! Durations are in seconds, with fractions, by the clock of the [`Backend`](crate::Backend). Names
//! of locks are not labels, since a program may have millions; the [events](crate::observe) contain
//! them.
//!
//! All series of a backend are registered at zero when its locks are created, so that an alert on
//! the growth of a series sees its first event. Each series looks for the recorder again at its
//! first value, and keeps it: a recorder that is installed later misses the zeros and the series
//! that were used before. After that an uncontended lock allocates nothing here.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, SharedString, Unit};

use super::labels::{Kind, QueuedIn};
use crate::{Clock, Ended, Error, ErrorKind, Instant, Mode};

const KINDS: [&str; 8] =
    ["mutex", "fair", "read", "write", "semaphore", "multi", "election", "job"];
const OUTCOMES: [&str; 5] = ["granted", "busy", "timeout", "error", "cancelled"];
const MODES: [&str; 3] = ["exclusive", "shared", "permits"];
const QUEUES: [&str; 2] = ["process", "store"];
const REASONS: [&str; 4] = ["expired", "revoked", "clock_step", "store_reset"];
const RENEWALS: [&str; 3] = ["kept", "lost", "failed"];

/// The series of one engine.
pub(crate) struct Series {
    clock: Clock,
    backend: SharedString,
    acquire: [[OnceLock<Histogram>; OUTCOMES.len()]; KINDS.len()],
    hold: [OnceLock<Histogram>; MODES.len()],
    contended: [OnceLock<Counter>; QUEUES.len()],
    lost: [OnceLock<Counter>; REASONS.len()],
    renewals: [OnceLock<Counter>; RENEWALS.len()],
    held: OnceLock<Gauge>,
    waiting: OnceLock<Gauge>,
}

impl Series {
    pub(crate) fn new(store: &str, clock: Clock) -> Self {
        describe();
        let kind = store.split(':').next().unwrap_or(store);
        let series = Self {
            clock,
            backend: SharedString::from_shared(Arc::from(kind)),
            acquire: Default::default(),
            hold: Default::default(),
            contended: Default::default(),
            lost: Default::default(),
            renewals: Default::default(),
            held: OnceLock::new(),
            waiting: OnceLock::new(),
        };
        series.register();
        series
    }

    /// Registers all series with the current recorder. It keeps no handle, so that a recorder that
    /// is installed before their first values receives them.
    fn register(&self) {
        for kind in 0..KINDS.len() {
            for outcome in 0..OUTCOMES.len() {
                drop(self.acquire_series(kind, outcome));
            }
        }
        for mode in 0..MODES.len() {
            drop(self.hold_series(mode));
        }
        for queue in 0..QUEUES.len() {
            self.contended_series(queue).increment(0);
        }
        for reason in 0..REASONS.len() {
            self.lost_series(reason).increment(0);
        }
        for outcome in 0..RENEWALS.len() {
            self.renewals_series(outcome).increment(0);
        }
        self.held_series().increment(0.0);
        self.waiting_series().increment(0.0);
    }

    fn acquire_series(&self, kind: usize, outcome: usize) -> Histogram {
        metrics::histogram!(
            "dlock_acquire_seconds", "backend" => self.backend.clone(),
            "kind" => KINDS[kind], "outcome" => OUTCOMES[outcome]
        )
    }

    fn hold_series(&self, mode: usize) -> Histogram {
        metrics::histogram!(
            "dlock_hold_seconds", "backend" => self.backend.clone(), "mode" => MODES[mode]
        )
    }

    fn contended_series(&self, queue: usize) -> Counter {
        metrics::counter!(
            "dlock_contended_total", "backend" => self.backend.clone(), "queue" => QUEUES[queue]
        )
    }

    fn lost_series(&self, reason: usize) -> Counter {
        metrics::counter!(
            "dlock_lost_total", "backend" => self.backend.clone(), "reason" => REASONS[reason]
        )
    }

    fn renewals_series(&self, outcome: usize) -> Counter {
        metrics::counter!(
            "dlock_renewals_total", "backend" => self.backend.clone(),
            "outcome" => RENEWALS[outcome]
        )
    }

    fn held_series(&self) -> Gauge {
        metrics::gauge!("dlock_held", "backend" => self.backend.clone())
    }

    fn waiting_series(&self) -> Gauge {
        metrics::gauge!("dlock_waiting", "backend" => self.backend.clone())
    }

    pub(crate) fn start(&self, kind: Kind) -> Started<'_> {
        Started {
            series: self,
            kind,
            since: self.clock.now(),
            outcome: AcquisitionOutcome::Cancelled,
        }
    }

    fn acquired(&self, kind: Kind, outcome: AcquisitionOutcome, after: Duration) {
        let (kind, outcome) = (kind as usize, outcome as usize);
        let histogram =
            self.acquire[kind][outcome].get_or_init(|| self.acquire_series(kind, outcome));
        histogram.record(after);
    }

    pub(crate) fn hold(&self, mode: Mode, after: Duration) {
        let mode = match mode {
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Permits { .. } => 2,
        };
        self.hold[mode].get_or_init(|| self.hold_series(mode)).record(after);
    }

    pub(crate) fn contended(&self, line: QueuedIn) {
        let line = line as usize;
        self.contended[line].get_or_init(|| self.contended_series(line)).increment(1);
    }

    pub(crate) fn lost(&self, how: Ended) {
        let reason = match how {
            Ended::Released => return,
            Ended::Expired => 0,
            Ended::Revoked => 1,
            Ended::ClockStep => 2,
            Ended::StoreReset => 3,
        };
        self.lost[reason].get_or_init(|| self.lost_series(reason)).increment(1);
    }

    pub(crate) fn renewed(&self, kept: usize, lost: usize, failed: usize) {
        for (outcome, count) in [kept, lost, failed].into_iter().enumerate() {
            if count == 0 {
                continue;
            }
            let counter = self.renewals[outcome].get_or_init(|| self.renewals_series(outcome));
            counter.increment(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn held(&self, change: f64) {
        self.held.get_or_init(|| self.held_series()).increment(change);
    }

    pub(crate) fn waiting(&self, change: f64) {
        self.waiting.get_or_init(|| self.waiting_series()).increment(change);
    }
}

/// An acquisition in progress.
pub(crate) struct Started<'a> {
    series: &'a Series,
    kind: Kind,
    since: Instant,
    outcome: AcquisitionOutcome,
}

#[derive(Clone, Copy)]
enum AcquisitionOutcome {
    Granted,
    Busy,
    Timeout,
    Error,
    Cancelled,
}

impl Started<'_> {
    pub(crate) fn finish<T>(mut self, taken: &Result<Option<T>, Error>) {
        self.outcome = match taken {
            Ok(Some(_)) => AcquisitionOutcome::Granted,
            Ok(None) => AcquisitionOutcome::Busy,
            Err(error) if error.kind() == ErrorKind::Timeout => AcquisitionOutcome::Timeout,
            Err(_) => AcquisitionOutcome::Error,
        };
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        let after = self.series.clock.now().since(self.since);
        self.series.acquired(self.kind, self.outcome, after);
    }
}

/// Describes the series to the recorder.
fn describe() {
    let seconds = Unit::Seconds;
    metrics::describe_histogram!("dlock_acquire_seconds", seconds, "how long acquires took");
    metrics::describe_histogram!("dlock_hold_seconds", seconds, "how long claims were held");
    metrics::describe_counter!("dlock_contended_total", Unit::Count, "acquires that had to wait");
    metrics::describe_counter!("dlock_lost_total", Unit::Count, "locks that were lost");
    metrics::describe_counter!("dlock_renewals_total", Unit::Count, "renewals of leases");
    metrics::describe_gauge!("dlock_held", Unit::Count, "claims held now");
    metrics::describe_gauge!("dlock_waiting", Unit::Count, "acquires that wait now");
}
