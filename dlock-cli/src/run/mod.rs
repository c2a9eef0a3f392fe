//! `dlock run`: a command under a lock.

mod child;
mod messages;
mod nested;
pub(crate) mod signals;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    pin::pin,
    time::Duration,
};

use clap::Args;
use dlock::{
    Error, ErrorKind, Guard, LockName, Locks, admin::Note, backend::Clock, guarantees::Scope,
    guard::Released,
};
use rustix::process::Signal;

use self::{
    child::{Child, Orphans, reap},
    messages::Messages,
    nested::Environment,
    signals::Signals,
};
use crate::{
    failure::{Failure, code, is_busy},
    output::LockView,
    parse,
    store::{self, Source, Store},
};

/// Run a command while holding a lock.
///
/// Waits for the lock, runs the command, releases the lock, and exits with the command's exit code
/// (128+N if signal N ended it). dlock renews the lease while the command runs. stdin, stdout and
/// stderr are those of the command; dlock writes to stderr only if something is wrong, or with
/// --verbose.
///
/// The command gets the lock's name in DLOCK_NAME and the fencing token in DLOCK_TOKEN, a number
/// that is larger than in all earlier runs. The resource that the command writes to should refuse
/// smaller tokens. On a store without fencing tokens (see `dlock guarantees`), the number orders
/// nothing. DLOCK_URL is removed from the command's environment, unless --keep-url is given.
///
/// The lock is released when the command ends. If the command starts a process in the background
/// and ends, as a daemon does, that process runs on without the lock: run it in the foreground.
///
/// If the command runs `dlock run` with a name that it holds already, the inner run fails at once
/// with code 125, since it would wait for its own lock.
///
/// If the lock is lost while the command runs (the store was unreachable for a whole lease, or the
/// lock was broken), dlock sends TERM to the command, and KILL if it still runs after --kill-after;
/// the exit code is 123. Another client may hold the lock by then: --lock-delay keeps other clients
/// out for longer after a lease that expired.
///
/// dlock forwards TERM, INT, HUP, QUIT, USR1 and USR2 to the command, and exits after the command
/// has ended. While dlock waits for the lock, these signals end it. If the store does not answer
/// when the command has ended, dlock repeats the release for up to 30 s or until such a signal, and
/// exits with the command's exit code: the lock is free when its lease expires.
///
/// If stdin is a terminal, the command stays in dlock's process group, so that it can read from the
/// terminal and receives ^C from there; dlock signals the command alone. Otherwise the command gets
/// its own process group, and dlock signals the whole group. --foreground keeps the command in
/// dlock's group in any case.
///
/// If dlock itself is killed with KILL, the command continues to run, and the lock is free when its
/// lease expires. On Linux `dlock run ... -- setpriv --pdeathsig KILL COMMAND` ends the command,
/// too.
///
/// `inspect`, `list` and `watch` show a note for each claim: the host, the process id of dlock, and
/// the program's name without its path and its arguments, or the text of --note.
///
/// With --json dlock's messages on stderr are JSON objects, one on each line, with event (waiting,
/// granted, lost, released) or error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dlock run --name nightly-job --wait 0 -- ./report.sh
  dlock run --name schema --wait 5m --lease 10s -- ./migrate.sh --all
  dlock run --name config --shared -- ./read.sh
  dlock run --name crawlers --semaphore 4 -- ./crawl.sh")]
pub(crate) struct Run {
    /// The name of the lock
    ///
    /// It is not derived from the command, because two spellings of a command would be two locks.
    /// It is not read from the environment, because a run within a run would then wait for its own
    /// lock.
    #[arg(long, short, value_name = "NAME")]
    name: String,

    /// How long to wait for the lock; 0 is one attempt [default: no limit]
    ///
    /// The time to connect counts as well. While the store is unreachable, connecting is retried
    /// for --connect-timeout, even with 0.
    #[arg(long, short, value_name = "TIME", value_parser = parse::duration)]
    wait: Option<Duration>,

    /// How long the lock stays held if dlock dies or can't reach the store [default: 30s]
    #[arg(long, short, value_name = "TIME", value_parser = parse::duration)]
    lease: Option<Duration>,

    /// How much longer to keep other clients out after a lease that expired
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    lock_delay: Option<Duration>,

    /// Take a read lock, which other readers can hold at the same time
    #[arg(long, short, conflicts_with = "semaphore")]
    shared: bool,

    /// Take one of N permits (a semaphore); all clients of the name must use the same N
    #[arg(long, value_name = "N")]
    semaphore: Option<u32>,

    /// How long to wait between TERM and KILL if the lock is lost
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = parse::duration)]
    kill_after: Duration,

    /// The exit code if the lock is busy; with 0, nothing is printed unless --verbose is given
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = code::BUSY)]
    busy_code: u8,

    /// The text that `inspect`, `list` and `watch` show beside the claim [default: host, process
    /// id and the name of the program]
    ///
    /// At most 128 bytes without control characters. Everybody with read access to the store can
    /// see it, so it must not contain secrets. Plain and advisory locks keep no notes.
    #[arg(long, value_name = "TEXT")]
    note: Option<Note>,

    /// Give the URL of the store to the command, in DLOCK_URL, or in DLOCK_URL_FILE if it is in a
    /// file
    ///
    /// A command that uses the store itself needs it, such as `dlock inspect` or a program with the
    /// library.
    #[arg(long)]
    keep_url: bool,

    /// Keep the command in dlock's process group, and signal the command alone
    #[arg(long)]
    foreground: bool,

    /// Print on stderr when dlock waits, for which holder, and when it acquires and releases the
    /// lock
    #[arg(long, short)]
    verbose: bool,

    /// Print messages on stderr as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: Run, store: &Store) -> Result<u8, Failure> {
    let name = LockName::new(&args.name)?;
    let messages = Messages { json: args.json, verbose: args.verbose };
    let source = store.source()?;
    let mut signals = Signals::listen()?;
    let began = Clock::Boot.now();
    let (note, default) = (args.note.clone(), || args.default_note());
    let on_error = |error: &Error| messages.unreachable(error);
    let locks = tokio::select! {
        locks = store.connect_noted(&source, args.wait, note, default, on_error) => locks?,
        signal = signals.ending() => return Ok(signals::exit_code(signal)),
    };
    let spent = Clock::Boot.now().since(began);
    let wait = args.wait.map(|wait| wait.saturating_sub(spent));
    let taking = Taking { args: &args, name: &name, source: &source, wait, messages };
    let done = under_lock(&taking, &locks, &mut signals).await;
    store::close(&locks).await;
    done
}

/// The lock that a run acquires, and the settings of its wait.
struct Taking<'a> {
    args: &'a Run,
    name: &'a LockName,
    source: &'a Source,
    /// The rest of the time for the wait.
    wait: Option<Duration>,
    messages: Messages,
}

async fn under_lock(
    taking: &Taking<'_>,
    locks: &Locks,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let Taking { args, name, wait, messages, .. } = *taking;
    if locks.guarantees().scope == Scope::Process {
        return Err(Failure::misuse(format!(
            "the locks of {} are visible to no other process, so they would protect nothing: give \
             the URL of a store that other processes can reach",
            locks.backend().store()
        )));
    }
    let locks = args.view(locks, wait)?;
    tokio::select! {
        checked = nested::check(&locks, name, taking.source) => checked?,
        signal = signals.ending() => return Ok(signals::exit_code(signal)),
    }
    let taken = tokio::select! {
        biased;
        taken = args.take(&locks, name) => taken,
        never = messages.wait(&locks, name) => match never {},
        signal = signals.ending() => return Ok(signals::exit_code(signal)),
    };
    let guard = match taken {
        Err(error) if is_busy(&error) => return Err(args.busy(&locks, name, &error).await),
        taken => taken?,
    };
    messages.granted(name, guard.token());
    let environment = nested::environment(&locks, &guard, args.keep_url, taking.source);
    let done = protect(args, &guard, environment, messages, signals).await;
    let released = release(guard, signals).await;
    let done = done?;
    match (released, done) {
        (Ok(Released::AlreadyLost), Done::Ended(code)) => {
            return Err(Failure::new(
                code::LOST,
                format!(
                    "the command has ended with {code}, but lock {name:?} was lost before that: \
                     check what it has done, because another client may have held the lock"
                ),
            ));
        }
        (Err(error), _) => {
            messages.warn(&format!("{error}; the lock is free when its lease expires"));
        }
        (Ok(Released::Released), _) => messages.released(name),
        // The loss was reported.
        (Ok(_), _) => {}
    }
    Ok(match done {
        Done::Ended(code) => code,
        Done::Lost => code::LOST,
    })
}

/// How long a release is repeated if the store does not answer.
const RELEASE_LIMIT: Duration = Duration::from_secs(30);

/// Releases the lock. If the store does not answer, the command's exit code must not wait for a
/// whole lease, which may be hours.
async fn release(guard: Guard, signals: &mut Signals) -> Result<Released, Error> {
    // These signals came before the command ended, and were for the command.
    signals.discard();
    let unanswered = || {
        let text = "the store did not answer the release: check that it runs";
        Err(Error::new(ErrorKind::Unavailable, text))
    };
    tokio::select! {
        biased;
        released = guard.release() => released,
        _ = signals.ending() => unanswered(),
        () = tokio::time::sleep(RELEASE_LIMIT) => unanswered(),
    }
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// The command ended with this exit code.
    Ended(u8),
    /// dlock ended the command because the lock was lost.
    Lost,
}

/// Runs the command while the guard protects it.
async fn protect(
    args: &Run,
    guard: &Guard,
    environment: Environment,
    messages: Messages,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    let mut orphans = Orphans::of_this_process();
    let mut child = Child::start(&args.command, environment, args.foreground)?;
    let mut lost = pin!(guard.lost());
    let mut doubts = pin!(messages.hold(guard));
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return Ok(Done::Ended(child::exit_code(status?))),
            ended = &mut lost => {
                messages.lost(guard.name(), ended, args.kill_after);
                child.end(args.kill_after).await?;
                return Ok(Done::Lost);
            }
            signal = signals.next() => match signal {
                Signal::TSTP => {
                    child.suspend();
                    // The lease may have ended meanwhile. Then the next turn ends the command
                    // before it takes a further step.
                    if guard.check().is_ok() {
                        child.resume();
                    }
                }
                signal => child.forward(signal),
            },
            () = orphans.arrive() => reap(child.id()),
            never = &mut doubts => match never {},
        }
    }
}

impl Run {
    /// Returns locks with the options of the command line. The URL's options apply where it has
    /// none.
    fn view(&self, locks: &Locks, wait: Option<Duration>) -> Result<Locks, Error> {
        let mut options = locks.options();
        if let Some(lease) = self.lease {
            options = options.with_lease(lease);
        }
        if let Some(wait) = wait {
            options = options.with_wait(wait);
        }
        if let Some(delay) = self.lock_delay {
            options = options.with_lock_delay(delay);
        }
        // This process takes only one lock, so a local hand-off has no use.
        locks.without_handoff().with_options(options)
    }

    fn default_note(&self) -> Option<Note> {
        note(self.command.first()?)
    }

    /// Returns the failure of a wait for a lock that other clients hold. It names the holder if
    /// there is one. With `--busy-code 0` and without `--verbose` it has no message.
    async fn busy(&self, locks: &Locks, name: &LockName, error: &Error) -> Failure {
        if self.busy_code == 0 && !self.verbose {
            return Failure::new(0, "");
        }
        let what = match self.wait {
            Some(wait) if !wait.is_zero() => {
                let wait = humantime::format_duration(wait);
                format!("timed out after {wait} waiting for lock {name:?}")
            }
            _ => format!("lock {name:?} is busy"),
        };
        let text = match locks.inspect(name).await {
            Ok(state) if !state.holders.is_empty() => format!(
                "{what}, {}: use a longer --wait, or run `dlock inspect`",
                LockView::new(name, &state).state()
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

/// The number of characters of the host name that are kept, so that the rest has room.
const HOST: usize = 64;

/// Returns the note `web-3 pid 4711 migrate.sh`: the host, this process, and the program's name. It
/// leaves out the arguments, which may contain secrets.
fn note(program: &OsStr) -> Option<Note> {
    let host = rustix::system::uname();
    text(&host.nodename().to_string_lossy(), std::process::id(), program)
}

fn text(host: &str, pid: u32, program: &OsStr) -> Option<Note> {
    let host: String = host.chars().take(HOST).collect();
    let name = Path::new(program).file_name().unwrap_or(program);
    Note::fitted(&format!("{host} pid {pid} {}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_host_the_process_and_the_program() {
        let note = |host: &str, program: &str| text(host, 7, program.as_ref()).unwrap().to_string();
        assert_eq!(note("web-3", "migrate"), "web-3 pid 7 migrate");
        assert_eq!(note("web-3", "/secret/path/./migrate.sh"), "web-3 pid 7 migrate.sh");
        assert_eq!(note("web-3", "a\nb"), "web-3 pid 7 ab");
        let long = note(&"h".repeat(255), &"é".repeat(255));
        assert!(long.starts_with(&format!("{} pid 7 éé", "h".repeat(64))), "{long}");
        assert!(long.len() <= Note::MAX_BYTES);
    }
}
