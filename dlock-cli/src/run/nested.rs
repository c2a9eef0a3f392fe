//! The environment variables that `dlock run` sets for its command, and runs within runs.
//!
//! [`NESTED`] has one line for each run that a command is in: the claim, the token, the store and the
//! name of its lock. It contains no secret. A run of the same lock could wait for the end of its
//! outer run, which waits for it: also a shared one, or one of a semaphore, if another client waits
//! between them. So it is refused in every mode while the store shows that the outer run still holds
//! the lock. A process that outlives the outer run may take the lock.
//!
//! The claim shows the holder whatever prefix and token offset the two URLs have. On a quorum the
//! masters may know the claim by another id, but the token is the same.

use std::{ffi::OsString, path::absolute};

use dlock::{Guard, LockName, Locks, admin::ClaimState};

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
    let line = format!("{} {}{}", guard.claim(), guard.token(), line_end(locks, name));
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
pub(super) async fn check(locks: &Locks, name: &LockName) -> Result<(), Failure> {
    let outer = std::env::var(NESTED).unwrap_or_default();
    if outer.is_empty() {
        return Ok(());
    }
    // If the store fails, the attempt to take the lock reports that.
    let Ok(state) = locks.inspect(name).await else { return Ok(()) };
    let end = line_end(locks, name);
    if state.holders.iter().any(|holder| outer.lines().any(|line| is_of(line, holder, &end))) {
        return Err(Failure::misuse(format!(
            "this command already runs under lock {name:?}, which stays held until it ends: leave \
             out the inner `dlock run`, or use another name"
        )));
    }
    Ok(())
}

/// Whether a line of [`NESTED`] is of this holder. `end` is the end of a line of its lock.
fn is_of(line: &str, holder: &ClaimState, end: &str) -> bool {
    let Some((claim, rest)) = line.split_once(' ') else { return false };
    let token = holder.token.map(|token| token.to_string());
    claim == holder.claim.to_string()
        || token.is_some_and(|token| rest.strip_suffix(end) == Some(&*token))
}

fn line_end(locks: &Locks, name: &LockName) -> String {
    format!(" {} {name}", locks.backend().store())
}
