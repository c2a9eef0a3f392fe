//! `dlock watch`: locks as they change.

use std::{collections::BTreeMap, io::IsTerminal, time::Duration};

use clap::Args;
use dlock::{LockName, Locks};

use crate::{
    failure::Failure,
    list,
    output::{self, ClaimView, LockView},
    parse,
    store::{self, Store},
};

/// The top of a cleared screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Watch locks change hands.
///
/// On a terminal it clears the screen at each look and prints a line for each lock, as `list` does.
/// Elsewhere a line for each lock that has changed hands, or whose queue has changed; at first one
/// for each that is held. It looks now and then, so a hold that is shorter than --interval may not
/// be seen.
///
/// With --json each change is one object on a line, as `inspect` prints it. It goes on when the
/// store is out of reach for a while, and says so on stderr.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  dlock watch\n  dlock watch --name nightly-job --json")]
pub(crate) struct Watch {
    /// Only locks whose names begin with this
    #[arg(default_value = "", hide_default_value = true, conflicts_with = "name")]
    prefix: String,

    /// Only this lock
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,

    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::pause)]
    interval: Duration,

    /// End after so many looks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// How many locks at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = list::limit)]
    limit: usize,

    /// Print one JSON object for each change
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    store: Store,
}

pub(crate) async fn run(args: Watch) -> Result<u8, Failure> {
    let name = args.name.as_deref().map(LockName::new).transpose()?;
    let locks = args.store.connect().await?;
    let watched = watch(&args, name.as_ref(), &locks).await;
    store::close(&locks).await;
    watched.map(|()| 0)
}

async fn watch(args: &Watch, name: Option<&LockName>, locks: &Locks) -> Result<(), Failure> {
    let live = !args.json && std::io::stdout().is_terminal();
    let mut seen = Seen::default();
    let mut looks = 0;
    loop {
        let views = match name {
            Some(name) => locks.inspect(name).await.map(|state| vec![LockView::new(name, &state)]),
            None => list::look(locks, &args.prefix, args.limit).await.map(|(views, _)| views),
        };
        match views {
            Ok(views) if live => output::print(&screen(locks, &views, rows()))?,
            Ok(views) => {
                for view in seen.changed(views) {
                    if args.json {
                        output::print_json(&view)?;
                    } else {
                        output::print(&(view.line() + "\n"))?;
                    }
                }
            }
            Err(error) if error.is_transient() => Failure::from(error).tell(args.json),
            Err(error) => return Err(error.into()),
        }
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        tokio::time::sleep(args.interval).await;
    }
}

/// The table, no longer than the screen.
fn screen(locks: &Locks, views: &[LockView], rows: usize) -> String {
    let held = views.iter().filter(|view| !view.free).count();
    let mut text = format!("{CLEAR}{}: {held} held or waited for\n", locks.backend().store());
    // The line above, the line below, and the one of the cursor.
    let room = rows.saturating_sub(3).max(1);
    for view in views.iter().take(room) {
        text += &view.line();
        text.push('\n');
    }
    if views.len() > room {
        text += &format!("and {} more\n", views.len() - room);
    }
    text
}

/// How many lines the terminal has.
fn rows() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(24, |size| size.ws_row.into())
}

/// What the looks so far have shown.
#[derive(Default)]
struct Seen(BTreeMap<String, Vec<String>>);

impl Seen {
    /// Those that are not as they were. One that is not there any more is free.
    fn changed(&mut self, views: Vec<LockView>) -> Vec<LockView> {
        let now: BTreeMap<String, Vec<String>> =
            views.iter().map(|view| (view.name.clone(), marks(view))).collect();
        let mut changed: Vec<LockView> = views
            .into_iter()
            .filter(|view| now.get(&view.name) != self.0.get(&view.name))
            .collect();
        let gone =
            self.0.iter().filter(|(name, marks)| !marks.is_empty() && !now.contains_key(*name));
        changed.extend(gone.map(|(name, _)| LockView::gone(name.clone())));
        self.0 = now;
        changed
    }
}

/// What makes a lock another one to a watcher: not its times.
fn marks(view: &LockView) -> Vec<String> {
    let mark = |what: &str, claim: &ClaimView| format!("{what} {} {}", claim.claim, claim.mode);
    let holders = view.holders.iter().map(|claim| mark("holds", claim));
    holders.chain(view.waiters.iter().map(|claim| mark("waits", claim))).collect()
}

#[cfg(test)]
mod tests {
    use dlock::admin::{ClaimId, ClaimState, LockState, Mode};

    use super::*;

    fn held(name: &str, bits: u128, left: u64) -> LockView {
        let holder = ClaimState::new(
            ClaimId::from_bits(bits),
            Mode::Exclusive,
            None,
            Duration::from_secs(left),
        );
        let state = LockState::new(vec![holder], Vec::new(), None);
        LockView::new(&LockName::new(name).unwrap(), &state)
    }

    fn names(views: &[LockView]) -> Vec<String> {
        views.iter().map(|view| format!("{} {}", view.name, view.free)).collect()
    }

    #[test]
    fn only_changes_are_printed_and_a_missing_lock_is_free() {
        let mut seen = Seen::default();
        let first = seen.changed(vec![held("a", 1, 30), held("b", 2, 30)]);
        assert_eq!(names(&first), ["a false", "b false"]);
        assert!(seen.changed(vec![held("a", 1, 29), held("b", 2, 29)]).is_empty());
        assert_eq!(names(&seen.changed(vec![held("a", 3, 30)])), ["a false", "b true"]);
        assert_eq!(names(&seen.changed(Vec::new())), ["a true"]);
        assert!(seen.changed(Vec::new()).is_empty());
    }
}
