//! The optional part of the contract: requests by operators.

use async_trait::async_trait;

use crate::{Error, ErrorKind, FencingToken, Finding, LockName};

/// Requests by operators of a store, through [`Locks`](crate::Locks) or the command `dlock`. A
/// backend returns it from [`Backend::admin`](crate::Backend::admin). No lock needs it.
///
/// # Cancel safety
/// All of these futures may be dropped at any await and must leave the client usable.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Returns the names that begin with `prefix` and have a holder or a waiter, at most `limit` of
    /// them. An empty prefix matches all names.
    ///
    /// Contract: a name that has a holder or a waiter during the whole call is in the result,
    /// unless there are more than `limit` names; then the choice is unspecified. A free name may be
    /// in the result. Each name occurs once, in any order. The call changes nothing and blocks no
    /// other client: a store that has to scan all its data scans in steps.
    ///
    /// Errors: `Unsupported`, the default, if the store can't list names.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let _ = (prefix, limit);
        Err(Error::new(
            ErrorKind::Unsupported,
            "this store can't list its locks: inspect each lock by its name",
        ))
    }

    /// Examines the configuration of the store for an operator: its version, its clock, whether it
    /// loses data, the permissions of this client, and a remedy for each problem.
    ///
    /// Contract: leaves no lasting change. If the store refuses to answer a question, that is a
    /// finding too.
    ///
    /// Errors: `Unavailable` if the store does not answer at all.
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Raises the tokens of a name, for a resource that has seen a larger token than the store
    /// remembers.
    ///
    /// Contract: after the answer, every later grant of the name to any client has tokens above
    /// `above`, for as long as the store remembers the last token of a name. A holder of the lock
    /// keeps it, with its token. A repeated call has no further effect.
    ///
    /// Errors: `Unsupported`, the default, if the store can't raise tokens; `Config(Token)` if the
    /// store can't count that far.
    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        let _ = (name, above);
        Err(Error::new(
            ErrorKind::Unsupported,
            "this store's fencing tokens can't be raised: use a store that can, such as dlock's \
             tables in a database, set dlock.token_offset for all clients, or reset the token that \
             the resource has stored",
        ))
    }
}

/// The `Admin` of a backend that has none: all methods have their defaults.
pub(super) struct NoAdmin;

impl Admin for NoAdmin {}
