//! `dlock run`: a command under a lock.

mod child;
mod signals;
mod voice;
mod who;

use std::{ffi::OsString, pin::pin, time::Duration};

use clap::Args;
use dlock::{Error, Guard, LockName, Locks, admin::Note, guarantees::Scope, guard::Released};

use self::{child::Child, signals::Signals, voice::Voice};
use crate::{
    failure::{Failure, code, is_busy},
    output::LockView,
    parse,
    store::{self, Store},
};

/// Run a command while holding a lock.
///
/// Waits for the lock, runs the command, releases the lock, and exits with the command's exit code
/// (128+N when signal N ended it). The lock is kept for as long as the command runs. stdin, stdout
/// and stderr are the command's own; dlock writes to stderr only when something is wrong, or with
/// --verbose.
///
/// The command gets the lock's name in DLOCK_NAME and the fencing token in DLOCK_TOKEN, a number
/// that is larger than in all runs before. Have what the command writes to refuse smaller ones,
/// where it can. DLOCK_URL is taken out of its environment.
///
/// When the lock is lost while the command runs (the store was away for a whole lease, or somebody
/// broke the lock), the command gets TERM, and KILL when it is still there after --kill-after; the
/// exit code is 123. Others can have the lock by then: --lock-delay keeps them out for longer when
/// the store was away.
///
/// TERM, INT, HUP, QUIT, USR1 and USR2 go on to the command, and dlock stays until it has ended.
/// While dlock still waits for the lock they end it.
///
/// When stdin is a terminal the command stays in dlock's process group, so that it can read from
/// the terminal and ^C reaches it by itself; signals then go to the command alone. Otherwise it has
/// a process group of its own, and signals go to all that it has started there. --foreground
/// asks for the first in any case.
///
/// If dlock itself is killed with KILL, the command runs on and the lock is free when its lease
/// ends. On Linux `dlock run ... -- setpriv --pdeathsig KILL COMMAND` ends the command as well.
///
/// `inspect`, `list` and `watch` show whose the claim is: the host, the process id of dlock, and the
/// program's name without its path and its arguments, or what --note says.
///
/// With --json dlock's messages on stderr are JSON objects, one a line, with event (waiting, granted,
/// lost, released) or error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dlock run --name nightly-job --wait 0 -- ./report.sh
  dlock run --name schema --wait 5m --lease 10s -- ./migrate.sh --all
  dlock run --name config --shared -- ./read.sh
  dlock run --name crawlers --semaphore 4 -- ./crawl.sh")]
pub(crate) struct Run {
    /// The lock
    ///
    /// It is not derived from the command, since two spellings of a command would be two locks, and
    /// not taken from the environment, where a run within a run would find the outer one's lock and
    /// wait for it for ever.
    #[arg(long, short, value_name = "NAME")]
    name: String,

    /// How long to wait for the lock; 0 is one attempt [default: for ever]
    #[arg(long, short, value_name = "TIME", value_parser = parse::duration)]
    wait: Option<Duration>,

    /// How long the store keeps the lock when dlock is dead or cut off [default: 30s]
    #[arg(long, short, value_name = "TIME", value_parser = parse::duration)]
    lease: Option<Duration>,

    /// How much longer to keep others out after a lease that ended without a release
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    lock_delay: Option<Duration>,

    /// Hold it together with others that share it (a read lock)
    #[arg(long, short, conflicts_with = "semaphore")]
    shared: bool,

    /// Let so many hold it at a time (a semaphore); all that use the name must say the same
    #[arg(long, value_name = "N")]
    semaphore: Option<u32>,

    /// How long the command has to end after TERM when the lock is lost
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = parse::duration)]
    kill_after: Duration,

    /// The exit code when the lock is busy; with 0, nothing is printed unless --verbose is given
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = code::BUSY)]
    busy_code: u8,

    /// The text that `inspect`, `list` and `watch` show beside the claim [default: dlock.note in the
    /// URL, or else host, process id and the name of the program]
    ///
    /// At most 128 bytes without control characters. Everybody who may read the store sees it, so it
    /// must hold no secrets. Not kept by plain and advisory locks.
    #[arg(long, value_name = "TEXT")]
    note: Option<Note>,

    /// Keep the command in dlock's process group, and send signals to it alone
    #[arg(long)]
    foreground: bool,

    /// Say on stderr what is waited for and who holds it
    #[arg(long, short)]
    verbose: bool,

    /// Say it in JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    store: Store,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: Run) -> Result<u8, Failure> {
    let name = LockName::new(&args.name)?;
    let voice = Voice { json: args.json, verbose: args.verbose };
    let mut signals = Signals::listen()?;
    let locks = tokio::select! {
        locks = args.store.connect_noted(args.note.clone(), || args.default_note()) => locks?,
        signal = signals.ending() => return Ok(signals::exit_code(signal)),
    };
    let done = under_lock(&args, &name, &locks, voice, &mut signals).await;
    store::close(&locks).await;
    done
}

async fn under_lock(
    args: &Run,
    name: &LockName,
    locks: &Locks,
    voice: Voice,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    if locks.guarantees().scope == Scope::Process {
        return Err(Failure::misuse(format!(
            "locks of {} reach no other process, so they would protect nothing: give the URL of a \
             store that others can reach",
            locks.backend().store()
        )));
    }
    let locks = args.view(locks)?;
    let taken = tokio::select! {
        biased;
        taken = args.take(&locks, name) => taken,
        never = voice.wait(&locks, name) => match never {},
        signal = signals.ending() => return Ok(signals::exit_code(signal)),
    };
    let guard = match taken {
        Err(error) if is_busy(&error) => return Err(args.busy(&locks, name, &error).await),
        taken => taken?,
    };
    voice.granted(name, guard.token());
    let done = protect(args, &guard, voice, signals).await;
    let released = guard.release().await;
    let code = done?;
    match released {
        Ok(Released::AlreadyLost) if code != Done::Lost => {
            let Done::Ended(code) = code else { return Ok(code::LOST) };
            Err(Failure::new(
                code::LOST,
                format!(
                    "the command has ended with {code}, but lock {name:?} was lost before it did: \
                     see what it has done, since others may have held the lock"
                ),
            ))
        }
        released => {
            if let Err(error) = released {
                voice.warn(&format!("{error}; the lock is free when its lease ends"));
            } else {
                voice.released(name);
            }
            Ok(match code {
                Done::Ended(code) => code,
                Done::Lost => code::LOST,
            })
        }
    }
}

/// How the command went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// By itself, with this exit code.
    Ended(u8),
    /// It was ended, since the lock was lost.
    Lost,
}

/// Runs the command for as long as the guard protects it.
async fn protect(
    args: &Run,
    guard: &Guard,
    voice: Voice,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    let mut child = Child::start(&args.command, guard, args.foreground)?;
    let mut lost = pin!(guard.lost());
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return Ok(Done::Ended(child::exit_code(status?))),
            ended = &mut lost => {
                voice.lost(guard.name(), ended, args.kill_after);
                child.end(args.kill_after).await?;
                return Ok(Done::Lost);
            }
            signal = signals.next() => child.forward(signal),
        }
    }
}

impl Run {
    /// Locks with the options of the command line, and otherwise of the URL.
    fn view(&self, locks: &Locks) -> Result<Locks, Error> {
        let mut options = locks.options();
        if let Some(lease) = self.lease {
            options = options.with_lease(lease);
        }
        if let Some(wait) = self.wait {
            options = options.with_wait(wait);
        }
        if let Some(delay) = self.lock_delay {
            options = options.with_lock_delay(delay);
        }
        // There is nobody in this process to hand it to.
        locks.without_handoff().with_options(options)
    }

    fn default_note(&self) -> Option<Note> {
        who::note(self.command.first()?)
    }

    /// The failure of a wait for a lock that others hold. It names the holder while there is one. A
    /// busy lock that counts as success is no complaint.
    async fn busy(&self, locks: &Locks, name: &LockName, error: &Error) -> Failure {
        if self.busy_code == 0 && !self.verbose {
            return Failure::new(0, "");
        }
        let text = match locks.inspect(name).await {
            Ok(state) if !state.holders.is_empty() => format!(
                "lock {name:?} is busy: {}: use a longer --wait, or run `dlock inspect`",
                LockView::new(name, &state).line()
            ),
            _ => error.to_string(),
        };
        Failure::new(self.busy_code, text)
    }

    async fn take(&self, locks: &Locks, name: &LockName) -> Result<Guard, Error> {
        match self.semaphore {
            Some(permits) => locks.semaphore(name, permits)?.acquire().await,
            None if self.shared => locks.rw(name)?.read().lock().await,
            None => locks.mutex(name)?.lock().await,
        }
    }
}
