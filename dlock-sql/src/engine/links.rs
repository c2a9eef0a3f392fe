//! The connections that an engine gets at its start.

#[cfg(any(feature = "mysql", feature = "postgres"))]
use dlock_core::{Clock, LockName};

use super::told::Sight;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use super::{conn::Conn, row::Wanted};

/// The connections of an engine.
#[derive(Debug)]
pub(crate) struct Links<C, E> {
    /// The connections that write, at least one.
    pub(crate) writers: Vec<C>,
    /// The connection for renewals only.
    pub(crate) keeper: Option<C>,
    pub(crate) reader: C,
    /// A listener, which may not be open yet.
    pub(crate) ears: Option<E>,
    /// A sample of the database's clock, so that the first statements have a deadline.
    pub(crate) sight: Option<Sight>,
}

/// Reads the database's clock.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) async fn sight<C: Conn>(conn: &mut C) -> Option<Sight> {
    // The answer about any name contains the time.
    let wanted = [Wanted { name: LockName::new("dlock").ok()?, known: None }];
    let sent = Clock::Boot.now();
    let seen = conn.read(&wanted).await.ok()?;
    Some(Sight { sent, now: seen.now })
}
