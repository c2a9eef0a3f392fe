//! The meaning of the server's and the driver's errors.

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind, machine::in_use_as};
use zookeeper_client::Error as ZkError;

use crate::node::ELECTIONS;

/// `EPHEMERALONLOCALSESSION`, an error that the driver does not name.
const LOCAL_SESSION: i32 = -120;

/// Returns whether the request may have been applied, or may still be applied. The session
/// continues.
pub(crate) fn is_unknown(error: &ZkError) -> bool {
    // The driver reports a peer that does not answer, and a reset connection, as `Custom`.
    matches!(
        error,
        ZkError::ConnectionLoss
            | ZkError::Timeout
            | ZkError::Custom(_)
            | ZkError::UnexpectedError(_)
            | ZkError::UnmarshalError { .. }
    )
}

/// Returns whether a retry within the same session may help.
pub(crate) fn is_passing(error: &ZkError) -> bool {
    let refused = matches!(
        error,
        // The session belongs to another server by now. The driver reconnects.
        ZkError::Throttled | ZkError::NotReadOnly | ZkError::SessionMoved
    );
    refused || is_unknown(error)
}

/// Returns whether the session is over.
pub(crate) fn is_over(error: &ZkError) -> bool {
    matches!(
        error,
        ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed | ZkError::NoHosts
    )
}

/// Returns the error to show to people.
pub(crate) fn explain(error: ZkError) -> Error {
    let unavailable = |message: &str| Error::new(ErrorKind::Unavailable, message.to_owned());
    let refused = |message: &str| Error::config(ConfigIssue::Access, message.to_owned());
    let explained = match &error {
        ZkError::NoAuth => refused(
            "no rights: the directory or its nodes belong to other credentials; write their user \
             and password in the URL, use another dlock.root, or change the ACL (dlock needs \
             create, read, write and delete)",
        ),
        ZkError::AuthFailed => refused(
            "the server does not accept the credentials: check user and password in the URL",
        ),
        ZkError::InvalidAcl => refused(
            "the server does not accept the ACL: check that each entry is scheme:id:rights, and, \
             for dlock.acl=creator, that the URL has a user and password",
        ),
        ZkError::NoNode => refused(
            "the chroot of the URL does not exist: create it, use another, or use dlock.root, \
             which dlock creates",
        ),
        ZkError::Unimplemented => Error::new(
            ErrorKind::Unsupported,
            "the server does not support container nodes: use ZooKeeper 3.5.3 or later",
        ),
        ZkError::UnexpectedErrorCode(LOCAL_SESSION) => Error::new(
            ErrorKind::Unsupported,
            "the servers keep sessions local (localSessionsEnabled), and a local session can't hold \
             locks: set localSessionsUpgradingEnabled=true, or localSessionsEnabled=false, in \
             zoo.cfg of all servers",
        ),
        ZkError::NotReadOnly => unavailable(
            "the server is read-only, because it has no connection to the majority of its \
             ensemble: wait until it has, or give the addresses of all servers",
        ),
        ZkError::QuotaExceeded => {
            unavailable("the quota of the directory is used up: raise it, or delete nodes")
        }
        ZkError::Throttled => {
            unavailable("the server is overloaded and refuses requests: wait, or reduce its load")
        }
        ZkError::NoHosts | ZkError::Timeout => unavailable(
            "no server can be reached, or none that takes writes: check that they run, that a \
             majority of them is connected, and that the port is one without TLS (else use zks)",
        ),
        ZkError::NoChildrenForEphemerals => Error::new(
            ErrorKind::Protocol,
            "an ephemeral node of another program is where dlock needs a directory: delete it, or \
             use another dlock.root",
        ),
        ZkError::SessionExpired | ZkError::SessionMoved | ZkError::ClientClosed => unavailable(
            "the session has ended, and with it all its locks: acquire them again; dlock opens a \
             new session",
        ),
        ZkError::ConnectionLoss | ZkError::Custom(_) => {
            unavailable("the connection to the server was lost: check that it runs")
        }
        other => Error::new(
            ErrorKind::Protocol,
            format!(
                "the server does not answer like ZooKeeper 3.5.3 or later: check the address and \
                 the version ({other})"
            ),
        ),
    };
    let certainty = match explained.kind() {
        // Unknown for an ended session, too: the request may have been applied before its end.
        ErrorKind::Unavailable if is_unknown(&error) || is_over(&error) => Certainty::Unknown,
        ErrorKind::Protocol => Certainty::Unknown,
        _ => Certainty::NotApplied,
    };
    explained.with_certainty(certainty).with_source(error)
}

/// Returns the error of an invalid option value.
pub(crate) fn value(what: &str) -> Error {
    Error::config(ConfigIssue::OptionValue, what.to_owned())
}

/// Returns the error for a missing answer. The request continues in the background.
pub(crate) fn no_answer() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "no answer from ZooKeeper in time: check that the servers run and that a majority of them \
         is connected",
    )
}

/// Returns the error for more names than one request can carry.
pub(crate) fn too_many(names: usize) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{names} locks at once do not fit into one request (jute.maxbuffer): acquire fewer, or \
             use shorter names"
        ),
    )
}

/// Returns the error of `raise_tokens`: the servers can't be made to count from another number.
pub(crate) fn no_raise_tokens() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "ZooKeeper's fencing tokens are numbers of transactions and can't be raised: set \
         dlock.token_offset to the largest token seen, in the URLs of all programs, reset the \
         token that the resource has stored, or restore the ensemble's data",
    )
}

/// Returns the error for a claim that has no node, or whose session has ended.
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::NotHeld, "the claim has left the queue: try again")
}

/// Returns the error for numbers of transactions that are too large for tokens. The node exists.
pub(crate) fn no_tokens() -> Error {
    Error::config(
        ConfigIssue::Token,
        format!(
            "these servers have elected a leader more than {ELECTIONS} times, so their numbers of \
             transactions have no room for fencing tokens: move the locks to a new ensemble, and \
             reset the tokens that resources have stored"
        ),
    )
    .with_certainty(Certainty::Unknown)
}

/// Returns the error for a name that is in use with another capacity.
pub(crate) fn conflict(capacity: u32) -> Error {
    let what = match dlock_core::Mode::from_weight(capacity, capacity) {
        dlock_core::Mode::Permits { of, .. } => format!("a semaphore of {of} permits"),
        _ => "a mutex or read-write lock".to_owned(),
    };
    in_use_as(&what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_kind_certainty_and_remedy() {
        use Certainty::{NotApplied, Unknown};
        use ErrorKind::{Config, Protocol, Unavailable, Unsupported};
        let access = Config(ConfigIssue::Access);
        for (error, kind, certainty, says) in [
            (ZkError::NoAuth, access, NotApplied, "dlock.root"),
            (ZkError::NoNode, access, NotApplied, "chroot"),
            (ZkError::AuthFailed, access, NotApplied, "password"),
            (ZkError::InvalidAcl, access, NotApplied, "dlock.acl"),
            (ZkError::Unimplemented, Unsupported, NotApplied, "3.5.3"),
            (ZkError::NotReadOnly, Unavailable, NotApplied, "read-only"),
            (ZkError::QuotaExceeded, Unavailable, NotApplied, "quota"),
            (ZkError::Throttled, Unavailable, NotApplied, "overloaded"),
            (ZkError::NoHosts, Unavailable, Unknown, "majority"),
            (ZkError::Timeout, Unavailable, Unknown, "majority"),
            (ZkError::SessionExpired, Unavailable, Unknown, "session"),
            (ZkError::ConnectionLoss, Unavailable, Unknown, "connection"),
            (ZkError::NodeExists, Protocol, Unknown, "ZooKeeper"),
            (ZkError::UnexpectedErrorCode(-999), Protocol, Unknown, "-999"),
        ] {
            let explained = explain(error.clone());
            assert_eq!(explained.kind(), kind, "{error:?}");
            assert_eq!(explained.certainty(), certainty, "{error:?}");
            assert!(explained.to_string().contains(says), "{explained}");
        }
    }

    #[test]
    fn an_outcome_is_unknown_or_the_session_over_or_neither() {
        assert!(is_unknown(&ZkError::ConnectionLoss) && !is_over(&ZkError::ConnectionLoss));
        assert!(is_over(&ZkError::SessionExpired) && !is_unknown(&ZkError::SessionExpired));
        assert!(!is_over(&ZkError::NoNode) && !is_passing(&ZkError::NoNode));
        assert!(is_passing(&ZkError::Throttled) && !is_unknown(&ZkError::Throttled));
    }

    #[test]
    fn a_conflict_names_what_the_name_is_used_for() {
        let error = conflict(dlock_core::Mode::Exclusive.capacity());
        assert!(error.to_string().contains("mutex"), "{error}");
        assert!(conflict(5).to_string().contains("5 permits"));
    }
}
