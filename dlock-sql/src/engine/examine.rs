//! Findings that databases have in common.

use dlock_core::{Error, ErrorKind, Finding};

use super::Fault;

/// The number of connections that should be free: a few clients need about five each.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const ENOUGH: i64 = 20;

/// Returns the finding from an attempt to use the tables. A transient error is no finding.
pub(crate) fn of_tables<T>(prepared: Result<T, Fault>) -> Result<Finding, Fault> {
    match prepared {
        Ok(_) => Ok(Finding::fine(
            "tables",
            "dlock's tables exist, and this user has all the rights that it needs",
        )),
        Err(fault) => match fault.error.kind() {
            // These faults persist until an operator changes a setting. All others may be
            // transient, and are errors of the examination.
            ErrorKind::Config(_) | ErrorKind::Unsupported => Ok(of_error("tables", &fault.error)),
            _ => Err(fault),
        },
    }
}

/// Splits an error into the finding and, behind the colon, the remedy.
fn of_error(about: &'static str, error: &Error) -> Finding {
    // Messages of this crate have the form "finding: remedy".
    let text = error.to_string();
    match text.split_once(": ") {
        Some((found, remedy)) => Finding::wrong(about, found, remedy),
        None => Finding::wrong(about, text, "check the server's log"),
    }
}

/// A limit on connections.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) most: i64,
    pub(crate) left: i64,
}

/// Returns the finding about the room for more connections, below the limit that leaves the fewest.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn room(first: Limit, others: impl IntoIterator<Item = Limit>) -> Finding {
    let all = others.into_iter();
    let Limit { name, most, left } =
        all.fold(first, |least, one| if one.left < least.left { one } else { least });
    let found = format!("{} of {most} are left ({name})", left.max(0));
    match left >= ENOUGH {
        true => Finding::fine("connections", found),
        false => Finding::warning(
            "connections",
            found,
            format!(
                "raise {name}, or have each process use one client and fewer dlock.connections"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::{ConfigIssue, Level};

    use super::*;

    #[test]
    fn a_table_error_is_a_finding_and_a_temporary_one_an_error() {
        let missing = Error::config(ConfigIssue::SchemaMissing, "no tables: make them: now");
        let finding = of_tables::<()>(Err(missing.into())).unwrap();
        let expected = Finding::wrong("tables", "no tables", "make them: now");
        assert_eq!(finding, expected);
        let passing = Error::new(ErrorKind::Unavailable, "away: wait");
        assert!(of_tables::<()>(Err(passing.into())).is_err());
        assert_eq!(of_tables(Ok(())).unwrap().level, Level::Fine);
    }

    #[test]
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn few_free_connections_are_reported() {
        let limit = |left, most| Limit { name: "max_connections", most, left };
        for (left, most, level) in [
            (90, 100, Level::Fine),
            (10, 100, Level::Warning),
            (-3, 100, Level::Warning),
            (20, 10_000, Level::Fine),
        ] {
            assert_eq!(room(limit(left, most), []).level, level, "{left} of {most}");
        }
        let of_the_user = Limit { name: "the limit of the user", most: 3, left: 1 };
        for (first, other) in [(of_the_user, limit(95, 100)), (limit(95, 100), of_the_user)] {
            let found = room(first, [other]);
            assert_eq!(found.found, "1 of 3 are left (the limit of the user)");
            assert!(
                found.remedy.is_some_and(|text| text.starts_with("raise the limit of the user"))
            );
        }
    }
}
