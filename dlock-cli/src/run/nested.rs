//! The environment variables that `dlock run` sets for its command, and runs within runs.
//!
//! [`NESTED`] has one line for each run that a command is in: the token, the store and the name of
//! its lock. It contains no secret. A run with the same name in the same store would wait for its
//! own end, so it is refused while the store shows that the outer run still holds the lock: a
//! process that outlives the outer run may take the lock.

use std::{ffi::OsString, path::absolute};

use dlock::{FencingToken, Guard, LockName, Locks, admin::Mode};

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
    let (name, token) = (guard.name(), guard.token());
    let mut outer = std::env::var(NESTED).unwrap_or_default();
    if !outer.is_empty() {
        outer.push('\n');
    }
    let mut environment: Environment = vec![
        ("DLOCK_NAME", Some(name.as_str().into())),
        ("DLOCK_TOKEN", Some(token.to_string().into())),
        (NESTED, Some(format!("{outer}{}", line(locks, name, token)).into())),
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
pub(super) async fn check(
    locks: &Locks,
    name: &LockName,
    shared: bool,
    permits: bool,
) -> Result<(), Failure> {
    let outer = std::env::var(NESTED).unwrap_or_default();
    let end = line_end(locks, name);
    let tokens = outer.lines().filter_map(|line| line.strip_suffix(&end)?.parse::<u64>().ok());
    let tokens: Vec<u64> = tokens.collect();
    if tokens.is_empty() {
        return Ok(());
    }
    // If the store fails, the attempt to take the lock reports that.
    let Ok(state) = locks.inspect(name).await else { return Ok(()) };
    let excludes = |mode| match mode {
        Mode::Shared => !shared,
        Mode::Permits { .. } => !permits,
        _ => true,
    };
    let is_outer = |token: FencingToken| tokens.contains(&token.get());
    let mut outer = state.holders.iter().filter(|holder| holder.token.is_some_and(is_outer));
    if outer.any(|holder| excludes(holder.mode)) {
        return Err(Failure::misuse(format!(
            "this command already runs under lock {name:?}, which stays held until it ends: leave \
             out the inner `dlock run`, or use another name"
        )));
    }
    Ok(())
}

fn line(locks: &Locks, name: &LockName, token: FencingToken) -> String {
    format!("{token}{}", line_end(locks, name))
}

fn line_end(locks: &Locks, name: &LockName) -> String {
    format!(" {} {name}", locks.backend().store())
}
