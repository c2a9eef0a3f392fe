//! What the server's error codes mean: <https://www.postgresql.org/docs/current/errcodes-appendix.html>

use std::borrow::Cow;

use dlock_core::{
    Certainty::{NotApplied, Unknown},
    ConfigIssue::{Access, ForeignStore, OptionValue, SchemaMissing},
    ErrorKind::{Config, Protocol, Unavailable, Unsupported},
};

use super::error::{ENCODING, MISSING, Meaning, NOT_OURS, RIGHTS};
use crate::engine::Cure;

const POOLER: &str = "there is a pooler before the server, which needs dlock.pooler=true";

/// What a code means. A statement that the server refuses has not been applied.
pub(crate) fn by_code(code: &str, text: &str) -> Meaning {
    let retry = |what: Cow<'static, str>| (Unavailable, NotApplied, Cure::Retry, what);
    let apart = |what: Cow<'static, str>| (Unavailable, NotApplied, Cure::Apart, what);
    let config = |issue, what: Cow<'static, str>| (Config(issue), NotApplied, Cure::None, what);
    match code {
        "40001" | "40P01" => (
            Unavailable,
            NotApplied,
            Cure::AtOnce,
            "somebody else changed the same locks: try again".into(),
        ),
        "55P03" => apart(
            "somebody else's transaction keeps a row of dlock_lock locked: keep such transactions \
             short, and leave the table alone"
                .into(),
        ),
        "57014" => apart(
            "the server took too long, or somebody cancelled the statement: see whether it is \
             overloaded, or raise dlock.response_timeout"
                .into(),
        ),
        "0A000" if text.contains("cached plan") => {
            retry("the tables changed under the statement: try again".into())
        }
        "0A000" if text.contains("option") => config(
            OptionValue,
            format!(
                "the server, or a proxy before it such as AWS RDS Proxy, takes no settings from a \
                 URL: leave options out of it (and out of PGOPTIONS), and give them to the user by \
                 ALTER ROLE ({text:.200})"
            )
            .into(),
        ),
        "53300" => retry(
            "the server, or the user, has as many connections as it may: raise the limit, or \
             open dlock once for all locks of a process"
                .into(),
        ),
        "57P03" => retry(format!("the server takes no connections just now: wait ({text})").into()),
        "25006" => retry(
            "the server takes no writes, as a standby or by default_transaction_read_only: give the \
             address of the primary"
                .into(),
        ),
        "57P01" | "57P02" | "57P04" | "57P05" | "25P03" | "25P04" => (
            Unavailable,
            Unknown,
            Cure::Retry,
            format!("the server ended the connection: try again ({text})").into(),
        ),
        "53100" => (
            Unavailable,
            NotApplied,
            Cure::None,
            "the server's disk is full: free some space".into(),
        ),
        "53000" | "53200" | "53400" => (
            Unavailable,
            NotApplied,
            Cure::None,
            format!("the server lacks memory or other resources: give it more ({text})").into(),
        ),
        "28P01" | "28000" => config(Access, no_entry(text)),
        // So say poolers.
        "08P01" if text.contains("authentication failed") || text.contains("no such user") => {
            config(Access, no_entry(text))
        }
        "3D000" => config(
            Access,
            format!("there is no such database: create it, or correct the URL ({text})").into(),
        ),
        "3F000" => config(
            Access,
            "no schema of the search path exists: create one, or set the user's search_path".into(),
        ),
        "42501" => config(Access, format!("the user lacks rights ({text}): {RIGHTS}").into()),
        "42P01" => config(SchemaMissing, MISSING.into()),
        "42703" | "42804" | "42809" | "42P10" => config(ForeignStore, NOT_OURS.into()),
        "22021" | "22P05" => config(ForeignStore, ENCODING.into()),
        "26000" | "42P05" => config(OptionValue, format!("{POOLER} ({text})").into()),
        "08P01" if text.contains("startup parameter") || text.contains("bind message") => {
            config(OptionValue, format!("{POOLER} ({text})").into())
        }
        "42601" | "42883" | "42704" => (
            Unsupported,
            NotApplied,
            Cure::None,
            format!(
                "the server does not know what dlock uses: take PostgreSQL 12 or later ({text})"
            )
            .into(),
        ),
        "XX001" | "XX002" => (
            Protocol,
            Unknown,
            Cure::None,
            format!("the server's data are damaged: see its log ({text})").into(),
        ),
        _ if code.starts_with("08") => (
            Unavailable,
            Unknown,
            Cure::Retry,
            format!("the connection to the server was lost or refused: try again ({text})").into(),
        ),
        _ if code.starts_with("23") => config(ForeignStore, NOT_OURS.into()),
        // Such as XX000, 58030 and 55000, which a proxy also says of a server that it can't reach.
        _ => (
            Unavailable,
            Unknown,
            Cure::Unclear,
            format!(
                "the server, or a proxy before it, failed in a way that dlock does not know: see its \
                 log ({code}: {text:.200})"
            )
            .into(),
        ),
    }
}

fn no_entry(text: &str) -> Cow<'static, str> {
    format!(
        "the server does not let the user in: check user and password in the URL, sslmode, and the \
         server's pg_hba.conf ({text})"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_certainty_and_remedy() {
        let rows = [
            ("40001", "", Unavailable, NotApplied, Cure::AtOnce, "again"),
            ("40P01", "", Unavailable, NotApplied, Cure::AtOnce, "again"),
            ("55P03", "", Unavailable, NotApplied, Cure::Apart, "short"),
            ("57014", "", Unavailable, NotApplied, Cure::Apart, "dlock.response_timeout"),
            ("0A000", "cached plan must not change", Unavailable, NotApplied, Cure::Retry, "again"),
            ("0A000", "no such thing", Unavailable, Unknown, Cure::Unclear, "no such thing"),
            (
                "0A000",
                "RDS Proxy currently doesn't support command-line options",
                Config(OptionValue),
                NotApplied,
                Cure::None,
                "ALTER ROLE",
            ),
            ("53300", "", Unavailable, NotApplied, Cure::Retry, "raise the limit"),
            ("53100", "", Unavailable, NotApplied, Cure::None, "space"),
            ("53200", "x", Unavailable, NotApplied, Cure::None, "give it more (x)"),
            ("57P03", "starting up", Unavailable, NotApplied, Cure::Retry, "wait (starting up)"),
            ("57P01", "", Unavailable, Unknown, Cure::Retry, "again"),
            ("08006", "", Unavailable, Unknown, Cure::Retry, "again"),
            ("08P01", "server down", Unavailable, Unknown, Cure::Retry, "(server down)"),
            ("08P01", "no such user: u", Config(Access), NotApplied, Cure::None, "password"),
            ("25006", "", Unavailable, NotApplied, Cure::Retry, "the primary"),
            ("28P01", "for user \"u\"", Config(Access), NotApplied, Cure::None, "password"),
            ("28000", "no entry", Config(Access), NotApplied, Cure::None, "pg_hba.conf"),
            ("3D000", "", Config(Access), NotApplied, Cure::None, "create it"),
            ("3F000", "", Config(Access), NotApplied, Cure::None, "search_path"),
            ("42501", "for x", Config(Access), NotApplied, Cure::None, "DELETE on dlock_lock"),
            ("42P01", "", Config(SchemaMissing), NotApplied, Cure::None, "PostgresConfig::SCHEMA"),
            ("42703", "", Config(ForeignStore), NotApplied, Cure::None, "their own"),
            ("23514", "", Config(ForeignStore), NotApplied, Cure::None, "their own"),
            ("22P05", "", Config(ForeignStore), NotApplied, Cure::None, "UTF8"),
            ("26000", "", Config(OptionValue), NotApplied, Cure::None, "dlock.pooler=true"),
            ("42P05", "", Config(OptionValue), NotApplied, Cure::None, "dlock.pooler=true"),
            (
                "08P01",
                "unsupported startup parameter: options",
                Config(OptionValue),
                NotApplied,
                Cure::None,
                "dlock.pooler=true",
            ),
            ("42883", "", Unsupported, NotApplied, Cure::None, "12 or later"),
            ("XX001", "", Protocol, Unknown, Cure::None, "log"),
            ("XX000", "no tenant", Unavailable, Unknown, Cure::Unclear, "(XX000: no tenant)"),
            ("58030", "", Unavailable, Unknown, Cure::Unclear, "proxy"),
            ("55000", "", Unavailable, Unknown, Cure::Unclear, "log"),
            ("", "", Unavailable, Unknown, Cure::Unclear, "log"),
        ];
        for (code, said, kind, certainty, cure, says) in rows {
            let (k, c, help, text) = by_code(code, said);
            assert_eq!((k, c, help), (kind, certainty, cure), "{code} {said}");
            assert!(text.contains(says), "{code}: {text}");
        }
    }
}
