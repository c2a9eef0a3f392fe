//! `dlock watch`: shows the changes of locks. On a terminal, `q` ends it.
//!
//! The terminal passes keys on at once and does not show them. Its settings are restored at each
//! end, also when a signal ends or stops dlock.

mod table;

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Read, stdin},
    thread,
    time::Duration,
};

use clap::Args;
use dlock::{LockName, Locks};
use rustix::{
    process::{Signal, getpgrp, getpid, kill_process},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};
use tokio::sync::oneshot;

use self::table::Size;
use crate::{
    failure::Failure,
    list,
    output::{self, ClaimView, LockView},
    parse,
    run::signals::{self, Signals},
    store::{self, Store},
};

/// Moves the cursor home and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Watch locks as they change.
///
/// On a terminal it redraws a table at each poll: the name of each lock, its state, and the note,
/// the token and the remaining lease of its holder, and how many clients wait. If stdout is not a
/// terminal, it first prints a line for each lock that is held, and then a line for each lock whose
/// holders or waiters have changed. `q` ends it on a terminal. It polls the store, so it may miss a
/// hold that is shorter than --interval.
///
/// With --json it prints one object on a line for each change, as `inspect` prints it. While the
/// store is unreachable, it reports that on stderr and continues.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  dlock watch\n  dlock watch --name nightly-job --json")]
pub(crate) struct Watch {
    /// Watch only locks whose names begin with PREFIX
    #[arg(default_value = "", hide_default_value = true, conflicts_with = "name")]
    prefix: String,

    /// Watch only this lock
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,

    /// How long to pause between polls
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::pause)]
    interval: Duration,

    /// End after N polls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Watch at most N locks
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = list::limit)]
    limit: usize,

    /// Print one JSON object for each change
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(args: Watch, store: &Store) -> Result<u8, Failure> {
    let name = args.name.as_deref().map(LockName::new).transpose()?;
    let locks = store.connect().await?;
    let live = !args.json && std::io::stdout().is_terminal();
    let mut keys = if live { Keys::read()? } else { Keys::none() };
    let watched = tokio::select! {
        watched = watch(&args, live, name.as_ref(), &locks) => watched.map(|()| 0),
        code = keys.end() => Ok(code),
    };
    drop(keys);
    store::close(&locks).await;
    watched
}

async fn watch(
    args: &Watch,
    live: bool,
    name: Option<&LockName>,
    locks: &Locks,
) -> Result<(), Failure> {
    let mut seen = Seen::default();
    let mut reads = 0;
    loop {
        let views = match name {
            Some(name) => locks.inspect(name).await.map(|state| vec![LockView::new(name, &state)]),
            None => list::read(locks, &args.prefix, args.limit).await.map(|(views, _)| views),
        };
        match views {
            Ok(views) if live => {
                let table = table::screen(locks.backend().store(), &views, size());
                output::print(&format!("{CLEAR}{table}"))?;
            }
            Ok(views) => {
                for view in seen.changed(views) {
                    if args.json {
                        output::print_json(&view)?;
                    } else {
                        output::print(&(view.line() + "\n"))?;
                    }
                }
            }
            Err(error) if error.is_transient() => Failure::from(error).print(args.json),
            Err(error) => return Err(error.into()),
        }
        reads += 1;
        if args.count.is_some_and(|count| reads >= count) {
            return Ok(());
        }
        tokio::time::sleep(args.interval).await;
    }
}

/// Returns the size of the terminal. Some terminals do not report theirs.
fn size() -> Size {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let (rows, columns) = size.map_or((0, 0), |size| (size.ws_row, size.ws_col));
    let or = |count: u16, default| if count == 0 { default } else { usize::from(count) };
    Size { rows: or(rows, 24), columns: or(columns, 80) }
}

/// The locks as the polls so far have shown them.
#[derive(Default)]
struct Seen(BTreeMap<String, Vec<String>>);

impl Seen {
    /// Returns the locks that have changed. A lock that is no longer listed is free.
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

/// Returns the properties whose change a watcher reports. The times are not among them.
fn marks(view: &LockView) -> Vec<String> {
    let mark = |what: &str, claim: &ClaimView| format!("{what} {} {}", claim.claim, claim.mode);
    let holders = view.holders.iter().map(|claim| mark("holds", claim));
    holders.chain(view.waiters.iter().map(|claim| mark("waits", claim))).collect()
}

/// The end of the output by a key or a signal.
struct Keys(Option<Terminal>);

struct Terminal {
    /// The settings to restore.
    before: Termios,
    signals: Signals,
    quit: oneshot::Receiver<()>,
}

impl Keys {
    /// Reads no keys.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Reads the keys if stdin is a terminal whose foreground process is this one.
    pub(super) fn read() -> Result<Self, Failure> {
        let foreground = tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        let Some(before) = tcgetattr(stdin()).ok().filter(|_| stdin().is_terminal() && foreground)
        else {
            return Ok(Self::none());
        };
        let signals = Signals::listen()?;
        let (sender, quit) = oneshot::channel();
        set(&raw(&before));
        // It ends with the process.
        thread::spawn(move || {
            let is_quit = |byte: Result<u8, _>| byte.is_ok_and(|byte| byte == b'q' || byte == b'Q');
            if stdin().lock().bytes().any(is_quit) {
                let _ = sender.send(());
            }
        });
        Ok(Self(Some(Terminal { before, signals, quit })))
    }

    /// Waits for the end, and returns the exit code. Handles ^Z.
    pub(super) async fn end(&mut self) -> u8 {
        let Some(terminal) = &mut self.0 else { return std::future::pending().await };
        let mut at_end = false;
        loop {
            tokio::select! {
                quit = &mut terminal.quit, if !at_end => match quit {
                    Ok(()) => return 0,
                    Err(_) => at_end = true,
                },
                signal = terminal.signals.next() => {
                    if signal != Signal::TSTP {
                        return signals::exit_code(signal);
                    }
                    set(&terminal.before);
                    let _ = kill_process(getpid(), Signal::STOP);
                    if tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp()) {
                        set(&raw(&terminal.before));
                    }
                }
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(terminal) = &self.0 {
            set(&terminal.before);
        }
    }
}

/// Returns the settings without lines and without echo. ^C still sends a signal.
fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    raw
}

fn set(settings: &Termios) {
    let _ = tcsetattr(stdin(), OptionalActions::Now, settings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock::admin::{ClaimId, ClaimState, LockState, Mode};

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
