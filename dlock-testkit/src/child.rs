//! The child processes of the cross-process cases. A child is the test binary, started again. It reads
//! commands from its standard input, one on each line, and answers each with one line.
//!
//! ```text
//! lock NAME LEASE_MS     -> held TOKEN         waits
//! share NAME LEASE_MS    -> held TOKEN         as a reader
//! check                  -> held TOKEN | lost
//! release                -> released | already lost
//! read FILE              -> N
//! write FILE N           -> ok
//! count NAME FILE TIMES  -> ok                 lock, read, write, release, again
//! ```

use std::{
    io::{BufRead, Write},
    path::Path,
    process::Stdio,
    time::Duration,
};

use dlock_core::{FencingToken, Guard, LockName, LockOptions, Locks, Released};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
};

use crate::{Stop, Store, Verdict, case::Cx, suite::runtime};

/// The variable with the address of the store. A process that has it is a child.
const ADDRESS: &str = "DLOCK_TEST_CHILD_OF";

pub(crate) fn is_one() -> bool {
    std::env::var_os(ADDRESS).is_some()
}

/// The variable with the setting in which the store runs.
const SETTING: &str = "DLOCK_TEST_CHILD_SETTING";

/// Serves the parent until the parent closes the pipe.
pub(crate) fn serve(stores: &[Box<dyn Store>]) -> ! {
    let code = match served(stores) {
        Ok(()) => 0,
        Err(stop) => {
            eprintln!("child: {}", stop.into_text());
            1
        }
    };
    std::process::exit(code)
}

fn served(stores: &[Box<dyn Store>]) -> Result<(), Stop> {
    let runtime = runtime()?;
    let (address, setting) = (std::env::var(ADDRESS)?, std::env::var(SETTING)?);
    let store = stores.iter().find(|store| store.setting() == setting);
    let store = store.ok_or_else(|| Stop::failed("the parent has a setting of its own"))?;
    let locks = runtime.block_on(async { Locks::new(store.connect_to(&address).await?) })?;
    let mut child = Child { locks, guard: None };
    for line in std::io::stdin().lock().lines() {
        let words: Vec<String> = line?.split(' ').map(str::to_owned).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = match runtime.block_on(child.obey(&words)) {
            Ok(answer) => answer,
            Err(stop) => format!("error {}", stop.into_text().replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

struct Child {
    locks: Locks,
    guard: Option<Guard>,
}

impl Child {
    async fn obey(&mut self, words: &[&str]) -> Result<String, Stop> {
        Ok(match *words {
            ["lock", name, lease] => {
                self.hold(self.with(lease)?.without_handoff().mutex(name)?.lock().await?)
            }
            ["share", name, lease] => self.hold(self.with(lease)?.rw(name)?.read().lock().await?),
            ["check"] => match self.held()?.check() {
                Ok(token) => format!("held {token}"),
                Err(_) => "lost".to_owned(),
            },
            ["release"] => match self.guard.take() {
                None => return Err(Stop::failed("nothing is held")),
                Some(guard) => match guard.release().await? {
                    Released::Released => "released".to_owned(),
                    _ => "already lost".to_owned(),
                },
            },
            ["read", file] => read(file)?.to_string(),
            ["write", file, number] => {
                std::fs::write(file, number)?;
                "ok".to_owned()
            }
            ["count", name, file, times] => {
                for _ in 0..times.parse::<u32>()? {
                    let guard = self.locks.mutex(name)?.lock().await?;
                    let seen = read(file)?;
                    tokio::task::yield_now().await;
                    std::fs::write(file, (seen + 1).to_string())?;
                    guard.release().await?;
                }
                "ok".to_owned()
            }
            _ => return Err(Stop::failed(format!("no such command: {words:?}"))),
        })
    }

    fn with(&self, lease_ms: &str) -> Result<Locks, Stop> {
        let lease = Duration::from_millis(lease_ms.parse()?);
        Ok(self.locks.with_options(LockOptions::new().with_lease(lease))?)
    }

    fn hold(&mut self, guard: Guard) -> String {
        let token = guard.token();
        self.guard = Some(guard);
        format!("held {token}")
    }

    fn held(&self) -> Result<&Guard, Stop> {
        self.guard.as_ref().ok_or_else(|| Stop::failed("nothing is held"))
    }
}

fn read(file: impl AsRef<Path>) -> Result<u64, Stop> {
    Ok(std::fs::read_to_string(file)?.trim().parse()?)
}

/// A child process that acquires, holds and releases locks on command.
pub(crate) struct Process {
    cx: Cx,
    child: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this binary again as a child.
    pub(crate) fn start(cx: &Cx) -> Result<Self, Stop> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(ADDRESS, cx.address()?)
            .env(SETTING, cx.setting())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let piped = || Stop::failed("the child has no pipe");
        let input = child.stdin.take().ok_or_else(piped)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(piped)?).lines();
        Ok(Self { cx: cx.clone(), child, input, output })
    }

    /// Sends a command, without waiting for the answer.
    pub(crate) async fn tell(&mut self, command: &str) -> Verdict {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> Result<String, Stop> {
        let line = self.cx.within("the child answers", self.output.next_line()).await??;
        line.ok_or_else(|| Stop::failed("the child has gone"))
    }

    /// Sends a command and waits for the answer.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<String, Stop> {
        self.tell(command).await?;
        self.answer().await
    }

    /// Makes the child acquire the lock.
    pub(crate) async fn lock(
        &mut self,
        name: &LockName,
        lease: Duration,
    ) -> Result<FencingToken, Stop> {
        held(&self.ask(&format!("lock {name} {}", lease.as_millis())).await?)
    }

    /// Kills the child, without a chance to clean up.
    pub(crate) async fn kill(&mut self) -> Verdict {
        Ok(self.child.kill().await?)
    }

    /// Stops the child (`SIGSTOP`).
    #[cfg(unix)]
    pub(crate) fn stop(&self) -> Verdict {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Resumes the child (`SIGCONT`).
    #[cfg(unix)]
    pub(crate) fn resume(&self) -> Verdict {
        self.signal(rustix::process::Signal::CONT)
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> Verdict {
        let gone = || Stop::failed("the child has gone");
        let id = i32::try_from(self.child.id().ok_or_else(gone)?)?;
        let pid = rustix::process::Pid::from_raw(id).ok_or_else(gone)?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

/// Returns the token in an answer `held TOKEN`.
pub(crate) fn held(answer: &str) -> Result<FencingToken, Stop> {
    match answer.strip_prefix("held ") {
        Some(token) => Ok(FencingToken::new(token.parse()?)?),
        None => Err(Stop::failed(format!("the child answers {answer:?}"))),
    }
}
