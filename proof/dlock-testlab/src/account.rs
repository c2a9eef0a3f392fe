//! The account for a server that refuses to run as root.

use std::fs;

use rustix::process::geteuid;

use crate::Stop;

/// An account of the machine that is not root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// Returns the account for a server, or `None` if this process does not run as root. The
    /// account is the first of `preferred` that exists, or `nobody`.
    pub(super) fn instead_of_root(preferred: &[&str]) -> Result<Option<Self>, Stop> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let known = fs::read_to_string("/etc/passwd")?;
        let mut names = preferred.iter().chain(&["nobody"]);
        let found = names.find_map(|name| Self::find(&known, name));
        let missing = || {
            Stop::missing(
                "this is root, as whom the server refuses to run, and nobody else is there",
            )
        };
        found.map(Some).ok_or_else(missing)
    }

    fn find(known: &str, name: &str) -> Option<Self> {
        let accounts = known.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut named = accounts.filter(|fields| fields[0] == name);
        let fields = named.next()?;
        Some(Self { user: fields.get(2)?.parse().ok()?, group: fields.get(3)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_name() {
        let known = "root:x:0:0::/root:/bin/sh\nsql:x:101:104:SQL,,,:/:/bin/sh\nodd:x:-2:-2::/:\n";
        let sql = Account { user: 101, group: 104 };
        assert_eq!(Account::find(known, "sql"), Some(sql));
        assert_eq!(Account::find(known, "sq"), None);
        assert_eq!(Account::find(known, "odd"), None);
    }
}
