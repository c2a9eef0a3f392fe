//! What the server's and the driver's errors mean.

use std::{borrow::Cow, time::Duration};

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind, Format};
use redis::{RedisError, ServerErrorKind};

/// What to do about a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    /// The server does not know the script: send its text.
    SendText,
    /// Ask again in a moment.
    Again,
    /// The connection or the server is not the right one any more: find it anew, then ask again.
    Reconnect,
    /// Asking again does not help.
    None,
}

/// What the ACL has to allow; the same line stands in the crate's documentation.
pub(crate) const ACL: &str = include_str!("acl.txt");

/// What servers of different versions say when an ACL forbids something, within scripts and without.
const NO_RIGHTS: [&str; 6] = [
    "NOPERM",
    "ACL failure",
    "no permissions",
    "can't run this command",
    "can't access at least one of the keys",
    "can't publish to the channel",
];

/// What servers of different versions, and services that run them, say of a command that nobody
/// may run: renamed, disabled, or not there.
const UNKNOWN: [&str; 6] = [
    "unknown command",
    "Unknown Redis command",
    "Unknown Valkey command",
    "ommand is not available",
    "ommand is not allowed",
    "not support for",
];

/// What they say of errors within scripts, of which the part before may have had its effect.
const IN_SCRIPT: [&str; 4] = ["in script", "called from", "executing the script", "user_script"];

/// How to cure an error.
pub(crate) fn cure(error: &RedisError) -> Cure {
    use redis::ErrorKind as Kind;
    match error.kind() {
        Kind::Server(ServerErrorKind::NoScript) => Cure::SendText,
        Kind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => Cure::Reconnect,
        Kind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => Cure::Again,
        Kind::Io if own(error, GUARDED).is_some() => Cure::None,
        Kind::Io | Kind::ClusterConnectionNotFound => Cure::Again,
        // The parser has lost its place in the stream.
        Kind::Parse => Cure::Reconnect,
        Kind::MasterNameNotFoundBySentinel => Cure::Again,
        Kind::Extension if matches!(error.code(), Some("BUSY" | "UNBLOCKED")) => Cure::Again,
        _ => Cure::None,
    }
}

/// Whether the server refused the command as a whole, so that nothing of it was applied.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}

/// Whether this user may not run the command, or nobody may.
pub(crate) fn is_denial(error: &RedisError) -> bool {
    use ServerErrorKind::{NoPerm, ResponseError};
    matches!(error.kind(), redis::ErrorKind::Server(NoPerm | ResponseError))
}

/// Whether this is said of a key that the user may not use.
pub(crate) fn is_key_denial(text: &str) -> bool {
    text.contains("access") && text.contains(" key")
}

/// The error for people.
pub(crate) fn explain(error: RedisError) -> Error {
    explain_for(error, ACL)
}

/// The same for a user who needs what this line allows.
pub(crate) fn explain_for(error: RedisError, acl: &str) -> Error {
    use redis::ErrorKind as Kind;
    let own = [NOT_CONNECTED, GUARDED, LATE].into_iter().find_map(|kind| own(&error, kind));
    if let Some(why) = own {
        return why.with_certainty(Certainty::NotApplied);
    }
    let text = error.to_string();
    let said = |what: &str| text.contains(what);
    // A script that ends in the middle keeps what it has written. Nothing is written before its
    // other errors.
    let in_the_middle = IN_SCRIPT.into_iter().any(said)
        && NO_RIGHTS.into_iter().chain(UNKNOWN).any(said)
        && !said("OOM");
    let certainty = match is_refusal(&error) && !in_the_middle {
        true => Certainty::NotApplied,
        false => Certainty::Unknown,
    };
    let unavailable = |message: String| Error::new(ErrorKind::Unavailable, message);
    let explained = match error.kind() {
        Kind::AuthenticationFailed => password(&text),
        // First of all, since it holds the lock's name, which may hold any of the words below.
        _ if format_in(&text).is_some() => Format::unknown(format_in(&text).unwrap_or_default()),
        _ if said("is not of dlock") || said("WRONGTYPE") => Error::new(
            ErrorKind::Protocol,
            format!(
                "a key of the lock holds something that is not dlock's: remove it, or use another \
                 name or dlock.prefix ({text})"
            ),
        ),
        _ if said("DLOCK") && said("no token is left") => no_token(),
        Kind::Server(ServerErrorKind::NoPerm) => rights(&text, acl),
        _ if said("WRONGPASS") || said("NOAUTH") || said("invalid password") => password(&text),
        _ if NO_RIGHTS.into_iter().any(said) => rights(&text, acl),
        _ if said("OOM") => unavailable(
            "the server is out of memory (maxmemory): give it more, or remove keys; locks that \
             are held can still be renewed and released"
                .to_owned(),
        ),
        _ if said("max number of clients") => unavailable(
            "the server has as many clients as it takes (maxclients): raise the limit, or use one \
             connection for all locks of a process"
                .to_owned(),
        ),
        Kind::Server(ServerErrorKind::ReadOnly) => unavailable(
            "the server is a read-only replica: give the address of the master, or use \
             redis+sentinel:// or redis+cluster:// to find it"
                .to_owned(),
        ),
        Kind::Server(ServerErrorKind::BusyLoading) => {
            unavailable("the server is still loading its data: wait until it has".to_owned())
        }
        _ if said("MISCONF") => unavailable(
            "the server takes no writes because it can't save them: see its log, and make room on \
             its disk"
                .to_owned(),
        ),
        _ if said("NOREPLICAS") => unavailable(
            "the server takes no writes because too few replicas follow it \
             (min-replicas-to-write): see that they run"
                .to_owned(),
        ),
        Kind::Extension if error.code() == Some("BUSY") => unavailable(
            "the server is busy with somebody's script: wait, or end it with SCRIPT KILL"
                .to_owned(),
        ),
        Kind::Extension if error.code() == Some("UNBLOCKED") => {
            unavailable(format!("the server is about to become a replica: try again ({text})"))
        }
        _ if said("DB index is out of range") => Error::config(
            ConfigIssue::Url,
            "the server has fewer databases than the URL's number: use 0, or raise databases",
        ),
        _ if said("unknown command") && said("SENTINEL") => Error::config(
            ConfigIssue::Url,
            "the server is no sentinel: give the sentinels' addresses (port 26379 as a rule), or \
             use redis://",
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
            format!("the cluster can't serve this lock just now: see CLUSTER INFO ({text})"),
        ),
        Kind::RESP3NotSupported => no_resp3(),
        _ if said("NOPROTO") || said("unknown command") && said("HELLO") => no_resp3(),
        _ if UNKNOWN.into_iter().any(said) => unknown(&format!("{text:.200}")),
        Kind::InvalidClientConfig => {
            Error::config(ConfigIssue::Url, format!("the driver refuses the address ({text})"))
        }
        Kind::Io if error.is_timeout() => unavailable(
            "no answer from the server in time: see whether it is overloaded or cut off, or raise \
             dlock.response_timeout"
                .to_owned(),
        ),
        Kind::Io if said("InvalidContentType") || said("corrupt message") => {
            tls("the server does not speak TLS on this port: use redis:// or its TLS port")
        }
        Kind::Io if said("invalid peer certificate") => tls(format!(
            "the server's certificate is not trusted ({text}): give its authority's file with \
             dlock.tls_ca, and in the URL the name that it is made for"
        )),
        Kind::Io if said("received fatal alert") => tls(format!(
            "the server refuses this client's TLS ({text}): if it wants a certificate, give one \
             that it trusts with dlock.tls_cert and dlock.tls_key"
        )),
        Kind::Io => unavailable(format!("the server can't be reached: see that it runs ({text})")),
        Kind::ClusterConnectionNotFound => unavailable(format!(
            "no node that serves this lock can be reached: see CLUSTER INFO ({text})"
        )),
        Kind::Server(_) | Kind::Extension => {
            Error::new(ErrorKind::Protocol, format!("the server refuses the command ({text})"))
        }
        _ => Error::new(
            ErrorKind::Protocol,
            format!(
                "the server does not answer as Redis or Valkey does: see that the address is \
                 theirs ({})",
                text.lines().collect::<Vec<_>>().join(" ")
            ),
        ),
    };
    explained.with_certainty(certainty).with_source(error)
}

/// There is no connection, so nothing was sent.
const NOT_CONNECTED: std::io::ErrorKind = std::io::ErrorKind::NotConnected;
/// Nothing was sent because of the restart guard.
const GUARDED: std::io::ErrorKind = std::io::ErrorKind::PermissionDenied;

/// The server has refused it because it came too late.
const LATE: std::io::ErrorKind = std::io::ErrorKind::Interrupted;

/// The server has run an acquire too late, twice.
pub(crate) fn late() -> RedisError {
    let why = Error::new(
        ErrorKind::Unavailable,
        "the request reached the server after this client had stopped waiting for it, so it has done \
         nothing: see whether the server's clock is being set, whether it is overloaded or cut off, \
         and whether the lease is longer than an answer takes",
    );
    RedisError::from(std::io::Error::new(LATE, why))
}

/// Why a link has not sent a command, in the driver's clothes.
pub(crate) fn not_connected(why: &Error) -> RedisError {
    RedisError::from(std::io::Error::new(NOT_CONNECTED, why.clone()))
}

/// The server has run for too short to grant anything for so long.
pub(crate) fn guarded(left: Duration) -> RedisError {
    let why = Error::new(
        ErrorKind::Unavailable,
        format!(
            "for all that is known, the server started a short while ago and may have lost who \
             holds what, so nothing is granted for another {left:.0?}: wait, or, if it has every \
             write on disk before it answers (dlock doctor), set dlock.restart_guard=0s"
        ),
    );
    RedisError::from(std::io::Error::new(GUARDED, why))
}

/// The link's own error in the driver's clothes, if it is of this kind.
fn own(error: &RedisError, kind: std::io::ErrorKind) -> Option<Error> {
    // The driver's errors share what they wrap.
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
            "the server wants a password in the URL: write :password@ or user:password@ before the \
             host, or dlock.sentinel_password for sentinels"
        }
        false => "the server does not accept the user or password in the URL",
    };
    Error::config(ConfigIssue::Access, format!("{what} ({text})"))
}

/// What a probe found: commands, and what the server said to each. `None` if it found nothing.
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

/// Nobody may run this.
fn unknown(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server does not know, or lets nobody run, a command that dlock needs: see that it \
             is Redis 6.2 or later, or Valkey, without a proxy or a service that lacks commands, and \
             that rename-command in redis.conf does not rename or disable it ({what})"
        ),
    )
}

/// The user may not do this.
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
        "the server does not speak RESP3: dlock needs Redis 6.2 or later, or Valkey, without a \
         proxy that speaks RESP2 only",
    )
}

/// The format that a script says it does not read. The key, whose name may hold anything, is behind it.
fn format_in(text: &str) -> Option<u64> {
    let (_, said) = text.split_once("DLOCK ")?;
    let (format, _) = said.strip_prefix("format ")?.split_once(' ')?;
    Some(format.parse().unwrap_or(u64::MAX))
}

/// Redis can't count on.
pub(crate) fn no_token() -> Error {
    Error::config(
        ConfigIssue::Token,
        "no fencing token is left that Redis counts exactly: the last one of this name is 2^53 or \
         almost, by raised tokens, a clock far ahead or another program; use another name, or, if \
         no resource has seen such a token, delete the keys of the lock",
    )
}

/// The answer is not what the script returns.
pub(crate) fn unreadable(what: &str, value: &redis::Value) -> Error {
    let shown = format!("{value:?}");
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the server's answer to {what} can't be read ({shown:.80}): is it Redis or Valkey?"
        ),
    )
}

#[cfg(test)]
mod tests;
