//! The verbs for operators of the toy store, with their faults.

use std::collections::BTreeMap;

use async_trait::async_trait;
use dlock_core::{Admin, Error, ErrorKind, FencingToken, LockName, Mode};

use super::Toy;
use crate::{
    fault::Fault,
    rules::{Lock, now},
};

#[async_trait]
impl Admin for Toy {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        match self.modest {
            true => Err(Error::new(
                ErrorKind::Unsupported,
                "this store does not list names: inspect them",
            )),
            false => list(self.fault, &mut self.names.lock(), prefix, limit),
        }
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        if self.modest {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "this store does not raise tokens: use another store",
            ));
        }
        let fault = self.fault;
        self.with(name, |lock, _| match fault {
            Fault::IgnoresRaisedTokens => {}
            Fault::ReleasedBlockLowersTokens => lock.last = lock.last.max(above.get()),
            _ => lock.last = (lock.last + 1).max(above.get()),
        });
        Ok(())
    }
}

/// Returns at most `limit` names that begin with `prefix` and have a holder or a waiter.
pub(crate) fn list(
    fault: Fault,
    locks: &mut BTreeMap<String, Lock>,
    prefix: &str,
    limit: usize,
) -> Result<Vec<LockName>, Error> {
    let mut names = Vec::new();
    for (name, lock) in locks {
        if begins(fault, name, prefix) {
            lock.end_leases(fault, now());
            names.extend(std::iter::repeat_n(LockName::new(name)?, times(fault, lock)));
        }
    }
    names.truncate(if fault == Fault::ListsAll { usize::MAX } else { limit });
    Ok(names)
}

/// Returns whether a name begins with this prefix.
fn begins(fault: Fault, name: &str, prefix: &str) -> bool {
    match fault {
        Fault::ListsByPattern => matches(name, prefix),
        Fault::ListsFolded => name.to_lowercase().starts_with(&prefix.to_lowercase()),
        Fault::ListsLongerNamesOnly => name.starts_with(prefix) && name != prefix,
        _ => name.starts_with(prefix),
    }
}

/// Returns how often a name is listed.
fn times(fault: Fault, lock: &Lock) -> usize {
    let mut counted = lock.entries.iter().filter(|entry| match fault {
        Fault::ListsHoldersOnly => entry.token.is_some(),
        Fault::ListsWritersOnly => entry.mode == Mode::Exclusive,
        _ => true,
    });
    match fault {
        Fault::ListsFreeNames => 1,
        Fault::ListsClaims => counted.count(),
        _ => usize::from(counted.next().is_some()),
    }
}

/// Returns whether the beginning of the text matches a pattern of SQL's `LIKE`.
fn matches(text: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => true,
        Some('%') => (0..=text.len())
            .filter(|at| text.is_char_boundary(*at))
            .any(|at| matches(&text[at..], rest.as_str())),
        Some(wanted) => {
            let mut left = text.chars();
            let fits = left.next().is_some_and(|c| wanted == '_' || c == wanted);
            fits && matches(left.as_str(), rest.as_str())
        }
    }
}
