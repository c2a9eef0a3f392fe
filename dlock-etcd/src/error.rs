//! The errors of the protocol. `client::failure` explains those of the servers.

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind, machine::in_use_as};

use crate::key::{Kind, MOST_NAMES};

/// Returns the error of an invalid option value.
pub(crate) fn value(what: &str) -> Error {
    Error::config(ConfigIssue::OptionValue, what.to_owned())
}

/// Returns the error for a missing answer. The request continues in the background.
pub(crate) fn no_answer() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "no answer from etcd in time: check that the members run and that a majority of them is \
         connected",
    )
}

/// Returns the error for a claim that has no key, or whose session has ended.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::NotHeld, "the claim has left the queue: try again")
}

/// Returns the error for more names than one transaction can carry.
pub(crate) fn too_many(names: usize) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{names} locks at once do not fit into one transaction of etcd: acquire at most \
             {MOST_NAMES}"
        ),
    )
}

/// Returns the error of `raise_tokens`: the servers can't be made to count from another number.
pub(crate) fn no_raise_tokens() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "etcd's fencing tokens are revisions and can't be raised: restore the cluster with etcdctl \
         snapshot restore --bump-revision, set dlock.token_offset to the largest token seen in the \
         URLs of all programs, or reset the token that the resource has stored",
    )
}

/// Returns the error for revisions that are too large for tokens. The key exists.
pub(crate) fn no_tokens() -> Error {
    Error::config(
        ConfigIssue::Token,
        "the revisions of these servers are above 2^48, so they have no room for fencing tokens: \
         move the locks to a new cluster, and reset the tokens that resources have stored",
    )
    .with_certainty(Certainty::Unknown)
}

/// Returns the error for a name that is in use as this, or with another capacity.
pub(crate) fn conflict(kind: Kind, capacity: Option<u32>) -> Error {
    let what = match (kind, capacity) {
        (Kind::Permits, Some(capacity)) => format!("a semaphore of {capacity} permits"),
        (Kind::Permits, None) => "a semaphore".to_owned(),
        _ => "a mutex or read-write lock".to_owned(),
    };
    in_use_as(&what)
}

/// Returns the error for a key of another program in a queue.
pub(crate) fn foreign(key: &[u8]) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!(
            "another program's key is in the queue of the lock ({}): find out which program writes \
             it, and use another dlock.root or another name",
            String::from_utf8_lossy(key)
        ),
    )
}

/// Returns the error for a claim whose value can't be read.
pub(crate) fn unreadable(key: &[u8]) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the number of permits in {} can't be read: find out which program wrote the key before you \
             delete it",
            String::from_utf8_lossy(key)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_names_what_the_name_is_used_for() {
        for (error, says) in [
            (conflict(Kind::Writer, None), "mutex"),
            (conflict(Kind::Permits, Some(5)), "5 permits"),
            (conflict(Kind::Permits, None), "semaphore"),
        ] {
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
