//! The worker processes, as the shop sees them, and the lines that they send to it.

use std::{
    env, fmt, io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    str::FromStr,
    thread,
    time::Duration,
};

use dlock::FencingToken;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::Failure;

/// The job of a worker. It is passed in the environment, because every user can read the arguments
/// of a process and the URL may contain a password.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) role: Role,
    pub(crate) url: String,
    pub(crate) stock: PathBuf,
    pub(crate) buyers: u32,
    pub(crate) lease: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Naive,
    Guarded,
    Impatient,
}

impl Job {
    /// Returns the job of this process, if it is a worker.
    pub(crate) fn from_env() -> Option<Self> {
        let job = Self::read_env()?;
        // A shop that is killed can't clean up, and a stopped worker can't detect that the shop has
        // ended.
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .ok()?;
        Some(job)
    }

    fn read_env() -> Option<Self> {
        let var = |name: &str| env::var(format!("INVENTORY_{name}")).ok();
        Some(Self {
            role: match var("ROLE")?.as_str() {
                "naive" => Role::Naive,
                "guarded" => Role::Guarded,
                "impatient" => Role::Impatient,
                _ => return None,
            },
            url: var("URL")?,
            stock: env::var_os("INVENTORY_STOCK")?.into(),
            buyers: var("BUYERS")?.parse().ok()?,
            lease: var("LEASE_MS").and_then(|ms| ms.parse().ok()).map(Duration::from_millis),
        })
    }

    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command
            .env(
                "INVENTORY_ROLE",
                match self.role {
                    Role::Naive => "naive",
                    Role::Guarded => "guarded",
                    Role::Impatient => "impatient",
                },
            )
            .env("INVENTORY_URL", &self.url)
            .env("INVENTORY_STOCK", &self.stock)
            .env("INVENTORY_BUYERS", self.buyers.to_string());
        if let Some(lease) = self.lease {
            command.env("INVENTORY_LEASE_MS", lease.as_millis().to_string());
        }
        Ok(command)
    }
}

/// A worker process, which is killed if it is dropped before it has ended.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    pub(crate) pid: u32,
    words: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker.
    pub(crate) fn start(job: &Job) -> Result<Self, Failure> {
        let mut child = job.command()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(pid), Some(words), Some(lines)) =
            (child.id(), child.stdin.take(), child.stdout.take())
        else {
            return Err("a worker ended at once".into());
        };
        Ok(Self { child, pid, words, lines: BufReader::new(lines).lines() })
    }

    /// Returns the next line of the worker; `None` at its end.
    ///
    /// # Errors
    /// If the worker has failed; it has printed the reason itself.
    pub(crate) async fn next(&mut self) -> Result<Option<Line>, Failure> {
        if let Some(line) = self.lines.next_line().await? {
            return line.parse().map(Some);
        }
        let status: ExitStatus = self.child.wait().await?;
        if status.success() { Ok(None) } else { Err(self.failed(&status.to_string())) }
    }

    /// Waits until the worker is ready for buyers.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        match self.next().await? {
            Some(Line::Ready) => Ok(()),
            other => Err(self.failed(&format!("it said {other:?}, not that it is ready"))),
        }
    }

    /// Tells the worker to continue.
    pub(crate) async fn nod(&mut self) -> io::Result<()> {
        self.words.write_all(b"go\n").await?;
        self.words.flush().await
    }

    pub(crate) fn failed(&self, what: &str) -> Failure {
        format!("worker {} failed: {what}", self.pid).into()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.start_kill().is_ok() {
            // Waits for the end, because the files that the worker uses are removed next. SIGKILL
            // ends a stopped process too.
            for _ in 0..200 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[cfg(unix)]
mod signals {
    use std::{io, time::Duration};

    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

    use super::Worker;

    impl Worker {
        /// Stops all threads of the process, and waits until they are stopped.
        pub(crate) async fn stop(&self) -> io::Result<()> {
            kill_process(self.id()?, Signal::STOP)?;
            let asked = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            while waitid(WaitId::Pid(self.id()?), asked)?.is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        }

        /// Continues a stopped process.
        pub(crate) fn resume(&self) -> io::Result<()> {
            Ok(kill_process(self.id()?, Signal::CONT)?)
        }

        fn id(&self) -> io::Result<Pid> {
            i32::try_from(self.pid)
                .ok()
                .and_then(Pid::from_raw)
                .ok_or_else(|| io::Error::other("a process id is out of range"))
        }
    }
}

#[derive(Debug)]
pub(crate) enum Line {
    /// The worker is ready for buyers.
    Ready,
    /// A buyer got the item.
    Sold,
    /// A buyer got the answer that no item is left.
    SoldOut,
    /// The worker holds the lock and has read how many items are left.
    Holding { token: FencingToken, left: u32 },
    /// The stock has refused a write.
    Refused(String),
    /// The result that the guard would have returned if the worker had checked it before the write.
    Guard(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Sold => write!(f, "sold"),
            Self::SoldOut => write!(f, "sold-out"),
            Self::Holding { token, left } => write!(f, "holding {token} {left}"),
            Self::Refused(why) => write!(f, "refused {why}"),
            Self::Guard(what) => write!(f, "guard {what}"),
        }
    }
}

impl FromStr for Line {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match word {
            "ready" => Self::Ready,
            "sold" => Self::Sold,
            "sold-out" => Self::SoldOut,
            "refused" => Self::Refused(rest.to_owned()),
            "guard" => Self::Guard(rest.to_owned()),
            "holding" => {
                let (token, left) = rest.split_once(' ').unwrap_or_default();
                Self::Holding { token: FencingToken::new(token.parse()?)?, left: left.parse()? }
            }
            _ => return Err(format!("a worker said {text:?}").into()),
        })
    }
}
