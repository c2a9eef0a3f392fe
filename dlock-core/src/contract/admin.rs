//! The optional part of the contract: what those who run a store ask of it.

use async_trait::async_trait;

use crate::{Error, ErrorKind, FencingToken, Finding, LockName};

/// What those who run a store ask of it, with [`Locks`](crate::Locks) or the command `dlock`. A
/// backend hands it out with [`Backend::admin`](crate::Backend::admin). No lock needs it.
///
/// # Cancel safety
/// All of these may be dropped at any await and must leave the client usable.
#[async_trait]
pub trait Admin: Send + Sync {
    /// The names that begin with `prefix` (all with an empty one) and are held or waited for, at
    /// most `limit` of them.
    ///
    /// Contract: a name that is held or waited for during the whole call is among them, unless there
    /// are more than `limit`; which of them are left out then is not said. A name that is free may
    /// be among them. Each is there once; the order does not matter. It changes nothing, and holds
    /// up nobody: a store that has to look through all that it has does so in steps.
    ///
    /// Errors: `Unsupported`, the default, where names can't be listed.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let _ = (prefix, limit);
        Err(Error::new(
            ErrorKind::Unsupported,
            "this store can't list its locks: inspect each lock by its name",
        ))
    }

    /// Looks at how the store is set up, for somebody who runs it: its version, its clock, whether
    /// it forgets, what this client may do there, and each time what to do about it.
    ///
    /// Contract: changes nothing that stays. What the store refuses to tell is a finding as well.
    ///
    /// Errors: `Unavailable` when the store does not answer at all.
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Makes the tokens of a name larger: for a resource that has seen a larger one than the store
    /// remembers.
    ///
    /// Contract: once it is answered, every later grant of the name to any client has tokens above
    /// `above`, for as long as the store remembers the last token of a name. Who holds the lock
    /// keeps it, with its token. Sent again, it changes nothing that anybody could see.
    ///
    /// Errors: `Unsupported`, the default, where tokens can't be raised; `Config(Token)` where the
    /// store can't count as far.
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

/// That of a backend which has none: the defaults.
pub(super) struct NoAdmin;

impl Admin for NoAdmin {}
