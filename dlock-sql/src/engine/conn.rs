//! The interface between the engine and a database: five statements, each with one round trip.
//!
//! | statement | changes | safe to send again |
//! |---|---|---|
//! | `apply` | appends operations | yes: each operation is idempotent by claim id |
//! | `read`, `page`, `range` | nothing | yes |
//! | `delete` | removes rows that are still as they were read | yes: a row that changed stays |
//! | `notify` | nothing | yes: a notification is only a hint |

use std::time::Duration;

use dlock_core::{Error, Finding, LockName, machine::Micros};

use super::{
    fault::Fault,
    list::Range,
    notification::Notification,
    row::{Mark, Row, Wanted, Write},
};

/// A connection. One task owns it, and never drops a call half-way.
///
/// A call on a broken connection opens a new one, or fails so that the retry opens one.
pub(crate) trait Conn: Send + 'static {
    /// Whether a write can be answered before it is safe from a crash.
    const CAN_SKIP_SYNC: bool = false;

    /// Whether a statement can reach the database after its sender has stopped waiting.
    const CAN_BE_LATE: bool = true;

    /// Returns the largest size of a statement, in bytes.
    fn most_bytes(&self) -> usize {
        usize::MAX
    }

    /// Bounds the time of each later call, including a connect. The connection may have a lower
    /// bound of its own. A database in this process ignores it.
    fn bound(&mut self, limit: Duration) {
        let _ = limit;
    }

    /// Returns the names whose rows are not locked by another transaction. Does not wait for a
    /// lock.
    fn unlocked(
        &mut self,
        names: &[&LockName],
    ) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        let all = names.iter().map(ToString::to_string).collect();
        std::future::ready(Ok(all))
    }

    /// Appends the operations to their rows at one point of the database's order, all or none. The
    /// writes have distinct names, in the order of names, which is also the order in which rows are
    /// locked. Returns the rows in the same order, perhaps without snapshots that the client knows.
    /// If a row can't be read, the error is only for its name.
    fn apply(
        &mut self,
        writes: &[Write],
    ) -> impl Future<Output = Result<Vec<Result<Row, Error>>, Fault>> + Send;

    /// Reads these rows, in their order.
    fn read(&mut self, wanted: &[Wanted]) -> impl Future<Output = Result<RowsRead, Fault>> + Send;

    /// Returns a number that changes when another connection has written. `None` if the database
    /// has none.
    fn version(&mut self) -> impl Future<Output = Result<Option<i64>, Fault>> + Send {
        std::future::ready(Ok(None))
    }

    /// Reads up to `most` rows behind the name `after`, in order, without the first `skip` of them.
    fn page(
        &mut self,
        after: &str,
        skip: u32,
        old: Micros,
        most: u32,
    ) -> impl Future<Output = Result<Vec<Paged>, Fault>> + Send;

    /// Reads the first `most` rows whose names are in the range, in order, all with their contents.
    fn range(
        &mut self,
        range: &Range,
        most: u32,
    ) -> impl Future<Output = Result<Vec<Paged>, Fault>> + Send;

    /// Deletes the rows that are still as they were read.
    fn delete(&mut self, rows: &[(String, Mark)])
    -> impl Future<Output = Result<(), Fault>> + Send;

    /// Notifies other clients of grants, if the database can. Polls find the grants of lost
    /// notifications.
    fn notify(
        &mut self,
        notifications: &[Notification],
    ) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = notifications;
        std::future::ready(Ok(()))
    }

    /// Returns whether answered writes survive a crash, with the current settings.
    fn is_durable(&mut self) -> impl Future<Output = Result<bool, Fault>> + Send {
        std::future::ready(Ok(true))
    }

    /// Returns the findings about the settings of the database.
    fn examine(&mut self) -> impl Future<Output = Result<Vec<Finding>, Fault>> + Send;

    /// Closes the connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A connection that receives notifications, for databases that have them.
pub(crate) trait Listener: Send + 'static {
    /// Returns whether it listens. If not, it is opened when the first claim waits.
    fn is_open(&self) -> bool;

    /// Starts to listen, again if necessary. Notifications that were sent before may be lost.
    fn open(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the text of the next notification. After an error, the listener must be opened
    /// again.
    fn next(&mut self) -> impl Future<Output = Result<String, Error>> + Send;
}

/// The listener of a database without notifications. It has no values.
#[cfg(any(feature = "mysql", all(feature = "sqlite", not(unix))))]
#[derive(Debug)]
pub(crate) enum NoListener {}

#[cfg(any(feature = "mysql", all(feature = "sqlite", not(unix))))]
impl Listener for NoListener {
    fn is_open(&self) -> bool {
        match *self {}
    }

    async fn open(&mut self) -> Result<(), Error> {
        match *self {}
    }

    async fn next(&mut self) -> Result<String, Error> {
        match *self {}
    }
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct RowsRead {
    /// The database's time. Zero if no name was read.
    pub(crate) now: Micros,
    /// The rows, `None` for a lock without one. If a row can't be read, the error is only for its
    /// name.
    pub(crate) rows: Vec<Option<Result<Row, Error>>>,
}

impl RowsRead {
    /// Returns the empty result for this number of names.
    pub(crate) fn of(names: usize) -> Self {
        Self { now: 0, rows: std::iter::repeat_with(|| None).take(names).collect() }
    }

    /// Records the time, and the row of the name at this index, if it has one.
    pub(crate) fn put(&mut self, at: i64, now: Micros, row: Option<Result<Row, Error>>) {
        // A bad index from the database is ignored: the name then counts as a name without a row.
        self.now = now;
        if let Some(slot) = usize::try_from(at).ok().and_then(|at| self.rows.get_mut(at)) {
            *slot = row;
        }
    }
}

/// A row of a page.
#[derive(Debug)]
pub(crate) struct Paged {
    pub(crate) name: String,
    /// The database's time.
    pub(crate) now: Micros,
    /// `None` if the snapshot is too young for the sweep, or the text can't be read.
    pub(crate) row: Option<Row>,
}
