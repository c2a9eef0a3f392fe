//! Two well-known table schemes for the mutex, so that other programs can take part, and for
//! comparison.
//!
//! Each name has one row: `(name, holder, state, version, expiry)`. The holder is the claim in 32
//! hexadecimal digits, or a name that another program has chosen. The expiry is in microseconds
//! since 1970 by the database's clock, and each statement compares it with that clock.
//!
//! | scheme | acquire | release |
//! |---|---|---|
//! | [`Scheme::Row`] | insert the row; the primary key allows one | delete the row if it is the claim's own |
//! | [`Scheme::Version`] | read the row; update it if it is free, or its lease has ended, and its version is still the one read | mark it free if it is the claim's own |
//!
//! Neither has a queue: waiters poll, and the fastest wins. The first scheme deletes its row, and
//! with it everything that could order two grants, so it has no fencing tokens. In the second, the
//! version is the token.
//!
//! A statement that takes or renews a row has a deadline by the database's clock, after which it
//! does nothing. So a late request has no effect. The row has no place to remember cancelled
//! claims, because other programs use it as well. So if a claim was released while one of its
//! requests may still arrive, it is released once more after the deadline of that request.

mod backend;
mod scheme;
mod worker;

#[cfg(feature = "postgres")]
pub(crate) use backend::{Form, MutexRequest, MutexStore, MutexTask};
use dlock_core::{Error, ErrorKind, Finding, LockName};
pub use scheme::Scheme;
pub(crate) use worker::start;

use crate::engine::{Fault, Listed, Range};

/// The database connection of a plain scheme. One task owns it, and never drops a call half-way.
pub(crate) trait PlainConn: Send + 'static {
    /// Runs a statement, and returns how many rows matched. An insert of an existing row returns 0.
    fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> impl Future<Output = Result<u64, Fault>> + Send;

    /// Runs the statement that reads the row of a name.
    fn read(
        &mut self,
        statement: &'static str,
        name: &LockName,
    ) -> impl Future<Output = Result<PlainRead, Fault>> + Send;

    /// Runs the statement that reads the first rows of a range of names.
    fn range(
        &mut self,
        statement: &'static str,
        range: &Range,
        most: u32,
    ) -> impl Future<Output = Result<Vec<Listed>, Fault>> + Send;

    /// Returns whether answered writes survive a crash, with the current settings.
    fn is_durable(&mut self) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Returns the findings about the settings of the database.
    fn examine(&mut self) -> impl Future<Output = Result<Vec<Finding>, Fault>> + Send;

    /// Closes the connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// An argument of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Text(&'a str),
    Number(i64),
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlainRead {
    /// The database's time.
    pub(crate) now: i64,
    pub(crate) row: Option<PlainRow>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlainRow {
    pub(crate) holder: String,
    pub(crate) is_held: bool,
    pub(crate) version: i64,
    /// The rest of its lease, in microseconds. Not positive after its end.
    pub(crate) left: i64,
}

/// Returns the fault of a read that returned no row, although the statement always returns one.
pub(crate) fn no_answer() -> Fault {
    let text = "the database did not return its time: check which server answers there";
    Error::new(ErrorKind::Protocol, text).into()
}

/// The statements of a database. Their files describe the arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statements {
    /// name, holder, lease, deadline: inserts a held row with version 1, unless the deadline has
    /// passed.
    pub(crate) insert: &'static str,
    /// name: deletes a row whose lease has ended.
    pub(crate) clear: &'static str,
    /// holder, lease, name, version, deadline: takes a row of this version that is not held, unless
    /// the deadline has passed.
    pub(crate) take: &'static str,
    /// lease, name, holder, deadline: restarts the lease, unless it has ended or the deadline has
    /// passed.
    pub(crate) renew: &'static str,
    /// name, holder: deletes the row.
    pub(crate) delete: &'static str,
    /// name, holder: marks the row free.
    pub(crate) free: &'static str,
    /// name: returns the time and, null without a row, holder, whether it is held (0 or 1),
    /// version, and microseconds left.
    pub(crate) read: &'static str,
    /// first name, name behind the last, number of rows: returns, ordered by name, name and whether
    /// it is held (0 or 1).
    pub(crate) range: &'static str,
}

#[cfg(test)]
impl Statements {
    pub(crate) const fn all(&self) -> [&'static str; 8] {
        let Self { insert, clear, take, renew, delete, free, read, range } = *self;
        [insert, clear, take, renew, delete, free, read, range]
    }
}
