//! All watches of a connection on one stream.

use super::{Bytes, EventType, Failure};

/// A message of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The member has set the watch: each change after this revision will be seen.
    Created { revision: i64 },
    /// A key has changed.
    Changed(Change),
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The revision of the change. A serializable read at the same member may show the state before
    /// it: read until the answer's revision is at least this one.
    pub(crate) revision: i64,
    pub(crate) key: Bytes,
    pub(crate) kind: EventType,
}

/// A watch. It ends on the server when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {}

impl Watch {
    /// Waits for the next message: first [`Seen::Created`], then changes in the order of their
    /// revisions. An error is the end: the connection or the stream has broken (`Disconnected`), the
    /// watch was refused (`Denied`, `Token`), the reader was too slow (`Lagged`, `Compacted`). Then
    /// each further call returns the error again; set a new watch. If the future is dropped,
    /// no message is lost.
    pub(crate) async fn next(&mut self) -> Result<Seen, Failure> {
        unimplemented!()
    }
}
