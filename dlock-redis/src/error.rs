//! The meaning of the server's and the driver's errors.

use std::{borrow::Cow, time::Duration};

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind, unknown_format};
use redis::{RedisError, ServerErrorKind};

/// The remedy for a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The server does not know the script: send its text.
    SendText,
    /// Retry soon.
    Retry,
    /// The connection or the server is not the right one any more: reconnect, then retry.
    Reconnect,
    /// No retry helps.
    None,
}

/// The rights that an ACL has to allow. The same line is in the crate's documentation.
pub(crate) const ACL: &str = include_str!("acl.txt");

/// The texts of different server versions if an ACL forbids something, within scripts and outside.
const NO_RIGHTS: [&str; 6] = [
    "NOPERM",
    "ACL failure",
    "no permissions",
    "can't run this command",
    "can't access at least one of the keys",
    "can't publish to the channel",
];

/// The texts of different server versions and hosted services for a command that no user can run:
/// renamed, disabled, or unknown.
const UNKNOWN: [&str; 5] = [
    "unknown command",
    "command called from",
    "ommand is not available",
    "ommand is not allowed",
    "not support for",
];

/// The texts of errors within scripts. The part of the script before the error has been applied.
pub(crate) const IN_SCRIPT: [&str; 4] =
    ["in script", "called from", "executing the script", "user_script"];

/// Returns the remedy for an error.
pub(crate) fn remedy_of(error: &RedisError) -> Remedy {
    use redis::ErrorKind as Kind;
    match error.kind() {
        Kind::Server(ServerErrorKind::NoScript) => Remedy::SendText,
        Kind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Remedy::Reconnect,
        Kind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => Remedy::Retry,
        Kind::Io if own(error, GUARDED).is_some() => Remedy::None,
        Kind::Io | Kind::ClusterConnectionNotFound => Remedy::Retry,
        // The parser has lost its place in the stream.
        Kind::Parse => Remedy::Reconnect,
        Kind::MasterNameNotFoundBySentinel => Remedy::Retry,
        Kind::Extension if matches!(error.code(), Some("BUSY" | "UNBLOCKED")) => Remedy::Retry,
        _ => Remedy::None,
    }
}

/// Returns whether the server refused the command as a whole, so that nothing of it was applied.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}

/// Returns whether this user, or every user, lacks the right to run the command.
pub(crate) fn is_denial(error: &RedisError) -> bool {
    use ServerErrorKind::{NoPerm, ResponseError};
    matches!(error.kind(), redis::ErrorKind::Server(NoPerm | ResponseError))
}

/// Returns whether this text refuses a key.
pub(crate) fn is_key_denial(text: &str) -> bool {
    text.contains("access") && text.contains(" key")
}

/// Returns the error to show to people.
pub(crate) fn explain(error: RedisError) -> Error {
    explain_for(error, ACL)
}

/// Like [`explain`], for a user who needs the rights of this ACL line.
pub(crate) fn explain_for(error: RedisError, acl: &str) -> Error {
    use redis::ErrorKind as Kind;
    let own = [NOT_CONNECTED, GUARDED, LATE].into_iter().find_map(|kind| own(&error, kind));
    if let Some(why) = own {
        return why.with_certainty(Certainty::NotApplied);
    }
    let text = error.to_string();
    let said = |what: &str| text.contains(what);
    // A script that fails half-way keeps its writes. Other errors come before any write.
    let in_the_middle = IN_SCRIPT.into_iter().any(said)
        && NO_RIGHTS.into_iter().chain(UNKNOWN).any(said)
        && !said("OOM");
    let certainty = match is_refusal(&error) && !in_the_middle {
        true => Certainty::NotApplied,
        false => Certainty::Unknown,
    };
    if let Some(format) = format_in(&error) {
        return unknown_format(format).with_certainty(certainty).with_source(error);
    }
    let unavailable = |message: String| Error::new(ErrorKind::Unavailable, message);
    let explained = match error.kind() {
        Kind::AuthenticationFailed => password(&text),
        // These arms come first: the text contains the lock's name, which may contain any of the
        // words below.
        _ if error.detail().is_some_and(|why| why.starts_with("DLOCK the waiter ")) => {
            damaged(&text)
        }
        _ if said("is not of dlock") || said("WRONGTYPE") => Error::new(
            ErrorKind::Protocol,
            format!(
                "a key of the lock holds something that is not dlock's: delete it, or use another \
                 name or dlock.prefix ({text})"
            ),
        ),
        _ if said("DLOCK") && said("no token is left") => no_token(),
        Kind::Server(ServerErrorKind::NoPerm) => rights(&text, acl),
        _ if said("WRONGPASS") || said("NOAUTH") || said("invalid password") => password(&text),
        _ if NO_RIGHTS.into_iter().any(said) => rights(&text, acl),
        _ if said("OOM") => unavailable(
            "the server is out of memory (maxmemory): add memory, or delete keys; held locks can \
             still be renewed and released"
                .to_owned(),
        ),
        _ if said("max number of clients") => unavailable(
            "the server has reached its limit of clients (maxclients): raise the limit, or use one \
             connection for all locks of a process"
                .to_owned(),
        ),
        Kind::Server(ServerErrorKind::ReadOnly) => unavailable(
            "the server is a read-only replica: give the address of the master, or use \
             redis+sentinel:// or redis+cluster:// to find it"
                .to_owned(),
        ),
        Kind::Server(ServerErrorKind::BusyLoading) => {
            unavailable(
                "the server is still loading its data: wait until it has finished".to_owned())
        }
        _ if said("MISCONF") => unavailable(
            "the server refuses writes because it can't save them: check its log, and free space \
             on its disk"
                .to_owned(),
        ),
        _ if said("NOREPLICAS") => unavailable(
            "the server refuses writes because too few replicas are connected \
             (min-replicas-to-write): check that they run"
                .to_owned(),
        ),
        Kind::Extension if error.code() == Some("BUSY") => unavailable(
            "the server is busy with another client's script: wait, or end it with SCRIPT KILL"
                .to_owned(),
        ),
        Kind::Extension if error.code() == Some("UNBLOCKED") => {
            unavailable(format!("the server is about to become a replica: try again ({text})"))
        }
        _ if said("DB index is out of range") => Error::config(
            ConfigIssue::Url,
            "the server has no database with the number in the URL: use 0, or raise databases in \
             redis.conf",
        ),
        _ if said("unknown command") && said("SENTINEL") => Error::config(
            ConfigIssue::Url,
            "the server is not a sentinel: give the addresses of the sentinels (usually port \
             26379), or use redis://",
        ),
        Kind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot) => Error::config(
            ConfigIssue::Url,
            "the server is a node of a cluster: use redis+cluster:// instead of redis://",
        ),
        _ if said("cluster support disabled") => Error::config(
            ConfigIssue::Url,
            "the server is not a node of a cluster: use redis:// instead of redis+cluster://",
        ),
        Kind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => unavailable(
            format!("the cluster can't serve this lock at present: check CLUSTER INFO ({text})"),
        ),
        Kind::RESP3NotSupported => no_resp3(),
        _ if said("NOPROTO") || said("unknown command") && said("HELLO") => no_resp3(),
        _ if UNKNOWN.into_iter().any(said) => unknown(&format!("{text:.200}")),
        Kind::InvalidClientConfig => {
            Error::config(ConfigIssue::Url, format!(
                "the driver rejected the address: correct the URL ({text})"))
        }
        Kind::Io if error.is_timeout() => unavailable(
            "no answer from the server in time: check whether it is overloaded or unreachable, or \
             raise dlock.response_timeout"
                .to_owned(),
        ),
        Kind::Io if said("InvalidContentType") || said("corrupt message") => {
            tls("the server does not speak TLS on this port: use redis:// or its TLS port")
        }
        Kind::Io if said("invalid peer certificate") => tls(format!(
            "the server's certificate is not trusted ({text}): set dlock.tls_ca to the file of its \
             authority, and use the host name of the certificate in the URL"
        )),
        Kind::Io if said("received fatal alert") => tls(format!(
            "the server refuses this client's TLS ({text}): if it requires a client certificate, \
             set dlock.tls_cert and dlock.tls_key to one that it trusts"
        )),
        Kind::Io => unavailable(format!(
            "the server can't be reached: check that it runs ({text})")),
        Kind::ClusterConnectionNotFound => unavailable(format!(
            "no node that serves this lock can be reached: check CLUSTER INFO ({text})"
        )),
        Kind::Server(_) | Kind::Extension => {
            Error::new(ErrorKind::Protocol, format!(
                "the server refuses the command: check its settings and its log ({text})"))
        }
        _ => Error::new(
            ErrorKind::Protocol,
            format!(
                "the server does not answer like Redis or Valkey: check the address ({})",
                text.lines().collect::<Vec<_>>().join(" ")
            ),
        ),
    };
    explained.with_certainty(certainty).with_source(error)
}

/// The kind for a missing connection: nothing was sent.
const NOT_CONNECTED: std::io::ErrorKind = std::io::ErrorKind::NotConnected;
/// The kind for the restart guard: nothing was sent.
const GUARDED: std::io::ErrorKind = std::io::ErrorKind::PermissionDenied;

/// The kind for a deadline: the server refused the request because it came too late.
const LATE: std::io::ErrorKind = std::io::ErrorKind::Interrupted;

/// Returns the error of an acquire that came after its deadline twice.
pub(crate) fn late() -> RedisError {
    let why = Error::new(
        ErrorKind::Unavailable,
        "the request reached the server after this client had stopped waiting for it, so it had no \
         effect: check whether the server's clock was set, whether the server is overloaded or \
         unreachable, and whether the lease is longer than a round trip",
    );
    RedisError::from(std::io::Error::new(LATE, why))
}

/// Returns the error of a link that has not sent a command, as an error of the driver's type.
pub(crate) fn not_connected(why: &Error) -> RedisError {
    RedisError::from(std::io::Error::new(NOT_CONNECTED, why.clone()))
}

/// Returns the error of the restart guard, which lasts for this long.
pub(crate) fn guarded(left: Duration) -> RedisError {
    let why = Error::new(
        ErrorKind::Unavailable,
        format!(
            "the server seems to have restarted a short while ago and may have lost held locks, so \
             nothing is granted for another {left:.0?}: wait, or, if every write is on disk before \
             it is answered (run dlock doctor), set dlock.restart_guard=0s"
        ),
    );
    RedisError::from(std::io::Error::new(GUARDED, why))
}

/// Returns the link's own error within the driver's type, if it is of this kind.
fn own(error: &RedisError, kind: std::io::ErrorKind) -> Option<Error> {
    // The driver wraps the error in a shared pointer.
    let wrapped = std::error::Error::source(error)?.downcast_ref::<Wrapped>()?;
    let error = wrapped.downcast_ref::<std::io::Error>()?;
    if error.kind() != kind {
        return None;
    }
    error.get_ref()?.downcast_ref::<Error>().cloned()
}

type Wrapped = std::sync::Arc<dyn std::error::Error + Send + Sync>;

fn password(text: &str) -> Error {
    let what = match text.contains("NOAUTH") {
        true => {
            "the server requires a password in the URL: write :password@ or user:password@ before \
             the host, or set dlock.sentinel_password for sentinels"
        }
        false => "the server does not accept the user or password in the URL: correct them",
    };
    Error::config(ConfigIssue::Access, format!("{what} ({text})"))
}

/// Returns the error for the commands that a probe found refused, with the server's texts. `None`
/// if there are none.
pub(crate) fn refused(commands: &[(&str, &str)], acl: &str) -> Option<Error> {
    let names = |of: &[&(&str, &str)]| {
        of.iter().map(|(command, _)| *command).collect::<Vec<_>>().join(", ")
    };
    let (missing, denied): (Vec<_>, Vec<_>) =
        commands.iter().partition(|(_, why)| UNKNOWN.into_iter().any(|words| why.contains(words)));
    match (missing.is_empty(), denied.is_empty()) {
        (true, true) => None,
        (false, _) => Some(unknown(&names(&missing))),
        (true, false) => Some(rights(&format!("no permission to run {}", names(&denied)), acl)),
    }
}

/// Returns the error of a command that no user can run.
fn unknown(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server does not know, or lets nobody run, a command that dlock needs: see that it \
             is Redis 7.0 or later, or Valkey, without a proxy or a service that lacks commands, and \
             that rename-command in redis.conf does not rename or disable it ({what})"
        ),
    )
}

/// Returns the error of a missing right.
pub(crate) fn rights(text: &str, acl: &str) -> Error {
    Error::config(
        ConfigIssue::Access,
        format!("the user lacks rights ({text}): {}", acl.trim_end()),
    )
}

fn tls(message: impl Into<Cow<'static, str>>) -> Error {
    Error::config(ConfigIssue::Access, message)
}

fn no_resp3() -> Error {
    Error::config(
        ConfigIssue::Access,
        "the server does not speak RESP3: dlock needs Redis 7.0 or later, or Valkey, without a \
         proxy that speaks RESP2 only",
    )
}

/// Returns the unknown format that a script reports. The key follows it, whose name may contain
/// anything.
fn format_in(error: &RedisError) -> Option<u64> {
    let (format, _) = error.detail()?.strip_prefix("DLOCK format ")?.split_once(' ')?;
    Some(format.parse().unwrap_or(u64::MAX))
}

/// Returns the error of a record that has this format, or that is the damaged record of a waiter.
pub(crate) fn unreadable_record(format: u16) -> Error {
    match format {
        0 => damaged("`dlock inspect` names both"),
        format => unknown_format(format),
    }
}

/// Returns the error of the damaged record of a waiter.
fn damaged(text: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the record of a waiter can't be read, and nobody behind it gets the lock: wait until \
             dlock removes it after ten minutes, or delete it with HDEL KEY CLAIM ({text})"
        ),
    )
}

/// Returns the error for the case that no exact token is left.
pub(crate) fn no_token() -> Error {
    Error::config(
        ConfigIssue::Token,
        "no fencing token is left that Redis counts exactly: the last one of this name is close to \
         2^53, because tokens were raised, a clock was far ahead or another program wrote it; use \
         another name, or, if no resource has seen such a token, delete the keys of the lock",
    )
}

/// Returns the error for an answer that the script can't return.
pub(crate) fn unreadable(what: &str, value: &redis::Value) -> Error {
    let shown = format!("{value:?}");
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the server's answer to {what} can't be read ({shown:.80}): check that it is Redis or \
             Valkey"
        ),
    )
}

#[cfg(test)]
mod tests;
