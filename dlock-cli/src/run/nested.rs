//! The environment variables that `dlock run` sets for its command, and runs within runs.
//!
//! [`NESTED`] has one line for each run that a command is in: the claim, the token, the store and the
//! name of its lock. They are those of the store: the name has the prefix of the URL, and the token
//! lacks its offset. The lines contain no secret. A run of the same lock could wait for the end of its
//! outer run, which waits for it: also a shared one, or one of a semaphore, if another client waits
//! between them. So it is refused in every mode while the store shows that the outer run still holds
//! the lock. A process that outlives the outer run may take the lock.
//!
//! The claim shows the holder whatever prefix and token offset the two URLs have. On a quorum the
//! masters may know the claim by another id, but the token is the same. In the advisory mode of
//! PostgreSQL the holder is unknown, and the last token of the name shows whether it is the outer run.

use std::{ffi::OsString, path::absolute};

use dlock::{
    FencingToken, Guard, LockName, Locks,
    admin::{ClaimId, ClaimState},
    backend::BackendUrl,
};

use crate::{
    failure::Failure,
    store::{self, NESTED, Source},
};

/// Variables to set, and to remove if they have no value.
pub(super) type Environment = Vec<(&'static str, Option<OsString>)>;

/// Returns the environment of the command that runs under this guard.
pub(super) fn environment(
    locks: &Locks,
    guard: &Guard,
    keep_url: bool,
    source: &Source,
) -> Environment {
    let name = guard.name();
    let stored = StoredName::of(locks, name, source.url());
    let line = format!("{} {}", guard.claim(), stored.line_end(guard.token()));
    let mut outer = std::env::var(NESTED).unwrap_or_default();
    if !outer.is_empty() {
        outer.push('\n');
    }
    let mut environment: Environment = vec![
        ("DLOCK_NAME", Some(name.as_str().into())),
        ("DLOCK_TOKEN", Some(guard.token().to_string().into())),
        (NESTED, Some(format!("{outer}{line}").into())),
    ];
    match &source.file {
        _ if !keep_url => environment.push((store::URL, None)),
        None => environment.push((store::URL, Some(source.url().into()))),
        Some(file) => {
            let file = absolute(file).unwrap_or_else(|_| file.clone());
            environment.push((store::URL, None));
            environment.push((store::URL_FILE, Some(file.into())));
        }
    }
    environment
}

/// Refuses a run that would wait for an outer run.
pub(super) async fn check(locks: &Locks, name: &LockName, source: &Source) -> Result<(), Failure> {
    let outer = std::env::var(NESTED).unwrap_or_default();
    if outer.is_empty() {
        return Ok(());
    }
    // If the store fails, the attempt to take the lock reports that.
    let Ok(state) = locks.inspect(name).await else { return Ok(()) };
    let stored = StoredName::of(locks, name, source.url());
    let is_outer = |holder| outer.lines().any(|line| stored.is_of(line, holder, state.last_token));
    if state.holders.iter().any(is_outer) {
        return Err(Failure::misuse(format!(
            "this command already runs under lock {name:?}, which stays held until it ends: leave \
             out the inner `dlock run`, or use another name"
        )));
    }
    Ok(())
}

/// A lock as it is in the store, so that it is the same for all URLs of the store.
struct StoredName {
    store: String,
    name: String,
    /// The number that the URL adds to each token.
    offset: u64,
}

impl StoredName {
    /// Returns that of a lock of these locks, which are those of the URL.
    fn of(locks: &Locks, name: &LockName, url: &str) -> Self {
        let mut url = url.parse::<BackendUrl>().ok();
        let mut option = |name| url.as_mut().and_then(|url| url.take(name));
        let prefix = option("prefix").unwrap_or_default();
        let offset = option("token_offset").and_then(|text| text.parse().ok()).unwrap_or(0);
        let store = locks.backend().store();
        let store = store.strip_suffix(&format!(" below {prefix:?}")).unwrap_or(store);
        Self { store: store.to_owned(), name: format!("{prefix}{name}"), offset }
    }

    /// Whether a line of [`NESTED`] is of this holder. `last` is the last token of the name.
    fn is_of(&self, line: &str, holder: &ClaimState, last: Option<FencingToken>) -> bool {
        let Some((claim, rest)) = line.split_once(' ') else { return false };
        let is_unknown = holder.claim == ClaimId::UNKNOWN;
        let token = holder.token.or(last.filter(|_| is_unknown));
        claim == holder.claim.to_string() || token.is_some_and(|token| rest == self.line_end(token))
    }

    /// Returns a line without its claim.
    fn line_end(&self, token: FencingToken) -> String {
        format!("{} {} {}", token.get().saturating_sub(self.offset), self.store, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use dlock::{
        admin::Mode,
        backend::{DynBackend, Memory, Prefixed},
    };

    use super::*;

    /// That of a name in this store, by a URL with this prefix and this token offset.
    fn stored(store: &DynBackend, prefix: &str, offset: u64, name: &str) -> StoredName {
        let backend: DynBackend = match prefix {
            "" => Arc::clone(store),
            prefix => Prefixed::new(Arc::clone(store), prefix).unwrap(),
        };
        let url = format!("memory:?dlock.prefix={prefix}&dlock.token_offset={offset}");
        StoredName::of(&Locks::new(backend).unwrap(), &LockName::new(name).unwrap(), &url)
    }

    #[tokio::test]
    async fn an_unknown_holder_is_found_whatever_prefix_and_offset() {
        let store: DynBackend = Memory::new();
        let token = |number| FencingToken::new(number).unwrap();
        let holder = |claim| {
            ClaimState::new(ClaimId::from_bits(claim), Mode::Exclusive, None, Duration::MAX)
        };
        let outer = stored(&store, "", 0, "p/q");
        let line = format!("{} {}", ClaimId::from_bits(7), outer.line_end(token(9)));
        for (prefix, offset, name, last, is_found) in [
            ("", 0, "p/q", 9, true),
            ("p/", 0, "q", 9, true),
            ("p/", 1000, "q", 1009, true),
            ("p/", 0, "q", 10, false),
            ("o/", 0, "q", 9, false),
            ("", 0, "q", 9, false),
        ] {
            let inner = stored(&store, prefix, offset, name);
            let found = inner.is_of(&line, &holder(0), Some(token(last)));
            assert_eq!(found, is_found, "{prefix:?} {offset} {name} {last}");
        }
        assert!(!outer.is_of(&line, &holder(8), Some(token(9))), "another claim is known");
        assert!(outer.is_of(&line, &holder(7), None));
    }
}
