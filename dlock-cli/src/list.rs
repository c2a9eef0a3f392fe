//! `dlock list`: the locks of a store that are held or waited for.

use std::io::IsTerminal;

use clap::Args;
use dlock::{LockName, Locks};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    failure::{Failure, complain},
    output::{self, LockView},
    store::{self, Store},
};

/// The number of concurrent requests.
const AT_ONCE: usize = 16;

/// List the locks that are held or waited for, one line for each.
///
/// Some stores can't list plain or advisory locks.
///
/// With --json it prints one object on a line for each lock, as `inspect` prints it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  dlock list\n  dlock list inventory/ --json")]
pub(crate) struct List {
    /// List only locks whose names begin with PREFIX
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// List at most N locks
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = limit)]
    limit: usize,

    /// Print one JSON object on a line for each lock
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(args: List, store: &Store) -> Result<u8, Failure> {
    let locks = store.connect().await?;
    let found = read(&locks, &args.prefix, args.limit).await;
    store::close(&locks).await;
    let (views, more) = found?;
    for view in &views {
        if args.json { output::print_json(view)? } else { output::print(&(view.line() + "\n"))? }
    }
    if views.is_empty() && !args.json && std::io::stdout().is_terminal() {
        complain("dlock: no lock is held or waited for");
    }
    if more {
        complain(&format!(
            "dlock: there are more than {} locks: give a prefix, or a larger --limit",
            args.limit
        ));
    }
    Ok(0)
}

/// Returns the locks whose names begin with `prefix`, sorted by name, and whether there are more.
pub(crate) async fn read(
    locks: &Locks,
    prefix: &str,
    limit: usize,
) -> Result<(Vec<LockView>, bool), dlock::Error> {
    let mut names = locks.list(prefix, limit.saturating_add(1)).await?;
    let more = names.len() > limit;
    names.truncate(limit);
    let mut views: Vec<LockView> =
        stream::iter(names).map(|name| one(locks, name)).buffered(AT_ONCE).try_collect().await?;
    // A free lock was released after it was listed.
    views.retain(|view| !view.free);
    Ok((views, more))
}

async fn one(locks: &Locks, name: LockName) -> Result<LockView, dlock::Error> {
    let state = locks.inspect(&name).await?;
    Ok(LockView::new(&name, &state))
}

/// Parses a limit: at least one lock, and small enough that one more can be requested.
pub(crate) fn limit(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(limit @ 1..=1_000_000) => {
            usize::try_from(limit).map_err(|_| "that is too many".to_owned())
        }
        _ => Err("write a number from 1 to 1000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(views: &[LockView]) -> Vec<&str> {
        views.iter().map(|view| view.name.as_str()).collect()
    }

    #[tokio::test]
    async fn held_locks_are_listed_by_prefix_and_up_to_a_limit() {
        let locks = dlock::connect("memory:").await.unwrap();
        let mut guards = Vec::new();
        for name in ["b", "a/2", "a/1"] {
            guards.push(locks.mutex(name).unwrap().lock().await.unwrap());
        }
        let (views, more) = read(&locks, "", 3).await.unwrap();
        assert_eq!((names(&views), more), (vec!["a/1", "a/2", "b"], false));
        let (views, more) = read(&locks, "a/", 1).await.unwrap();
        assert_eq!((views.len(), more), (1, true));
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert!(read(&locks, "", 3).await.unwrap().0.is_empty());
    }

    #[test]
    fn a_limit_is_a_number_above_zero() {
        assert_eq!(limit("1"), Ok(1));
        assert!(limit("0").is_err() && limit("all").is_err());
    }
}
