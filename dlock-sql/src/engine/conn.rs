//! What the engine asks of a database: five statements, each one round trip.

use std::time::Duration;

use dlock_core::{Error, Finding, LockName, machine::Micros};

use super::{
    fault::Fault,
    names::Range,
    note::Note,
    row::{Mark, Row, Wanted, Write},
};

/// A connection, owned by one task, which never drops a call half-way.
///
/// A call that finds the connection broken opens a new one, or says that trying again will.
pub(crate) trait Conn: Send + 'static {
    /// Whether a write can be answered before it is safe from a crash.
    const CAN_HURRY: bool = false;

    /// Whether a statement can reach the database after its sender has given it up.
    const CAN_BE_LATE: bool = true;

    /// How many bytes a statement may have.
    fn most_bytes(&self) -> usize {
        usize::MAX
    }

    /// From now on no call, connecting included, takes longer than this, or than the connection allows
    /// anyway. A database in this process goes its own pace.
    fn bound(&mut self, limit: Duration) {
        let _ = limit;
    }

    /// Which of these names have rows that no other transaction keeps locked, without waiting for one.
    fn unlocked(
        &mut self,
        names: &[&LockName],
    ) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        let all = names.iter().map(ToString::to_string).collect();
        std::future::ready(Ok(all))
    }

    /// Appends the operations to their rows at one point of the database's order, all or none.
    /// The writes have distinct names and stand by name. Gives their rows in the same order; of one
    /// whose snapshot is known it may leave that out. One that can't be read is no matter of the
    /// others.
    fn apply(
        &mut self,
        writes: &[Write],
    ) -> impl Future<Output = Result<Vec<Result<Row, Error>>, Fault>> + Send;

    /// Reads these rows, in their order.
    fn read(&mut self, wanted: &[Wanted]) -> impl Future<Output = Result<Sighting, Fault>> + Send;

    /// A number that changes when somebody else has written; `None` if the database has none.
    fn version(&mut self) -> impl Future<Output = Result<Option<i64>, Fault>> + Send {
        std::future::ready(Ok(None))
    }

    /// Reads up to `most` rows behind the name `after`, in order.
    fn page(
        &mut self,
        after: &str,
        old: Micros,
        most: u32,
    ) -> impl Future<Output = Result<Vec<Paged>, Fault>> + Send;

    /// Reads the first `most` rows whose names are in the range, in order. They are all of interest.
    fn range(
        &mut self,
        range: &Range,
        most: u32,
    ) -> impl Future<Output = Result<Vec<Paged>, Fault>> + Send;

    /// Deletes the rows that are still as they were read.
    fn delete(&mut self, rows: &[(String, Mark)])
    -> impl Future<Output = Result<(), Fault>> + Send;

    /// Tells others of grants, if the database can. What gets lost is found by looking.
    fn tell(&mut self, notes: &[Note]) -> impl Future<Output = Result<(), Fault>> + Send {
        let _ = notes;
        std::future::ready(Ok(()))
    }

    /// Whether it keeps over a crash what it has answered, as it is set up now.
    fn keeps(&mut self) -> impl Future<Output = Result<bool, Fault>> + Send {
        std::future::ready(Ok(true))
    }

    /// Looks at how the database is set up.
    fn examine(&mut self) -> impl Future<Output = Result<Vec<Finding>, Fault>> + Send;

    /// Closes the connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Where notes arrive, for databases that can tell.
pub(crate) trait Ears: Send + 'static {
    /// Listens, anew where it has to be. Notes that were sent before may get lost.
    fn open(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// The text of the next note. After an error it must be opened again.
    fn next(&mut self) -> impl Future<Output = Result<String, Error>> + Send;
}

/// The ears of a database that can't tell.
#[cfg(any(feature = "mysql", all(feature = "sqlite", not(unix))))]
#[derive(Debug)]
pub(crate) enum Deaf {}

#[cfg(any(feature = "mysql", all(feature = "sqlite", not(unix))))]
impl Ears for Deaf {
    async fn open(&mut self) -> Result<(), Error> {
        match *self {}
    }

    async fn next(&mut self) -> Result<String, Error> {
        match *self {}
    }
}

/// What a read saw.
#[derive(Debug)]
pub(crate) struct Sighting {
    /// The database's time. Zero if no name was asked for.
    pub(crate) now: Micros,
    /// The rows, `None` for a lock that has none. One that can't be read is no matter of the others.
    pub(crate) rows: Vec<Option<Result<Row, Error>>>,
}

impl Sighting {
    /// Of so many names, before anything was seen.
    pub(crate) fn of(names: usize) -> Self {
        Self { now: 0, rows: std::iter::repeat_with(|| None).take(names).collect() }
    }

    /// What was seen at a time of the name at this place: its row, if it has one.
    pub(crate) fn put(&mut self, at: i64, now: Micros, row: Option<Result<Row, Error>>) {
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
    /// `None` for a row whose snapshot is too young for the row to be of interest, or whose text
    /// can't be read.
    pub(crate) row: Option<Row>,
}
