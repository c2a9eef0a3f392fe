//! The parent's side of the cross-process cases.

use std::{process::Stdio, time::Duration};

use dlock_core::{FencingToken, LockName};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    Stop, Verdict,
    child::{ADDRESS, SETTING},
    context::Cx,
};

/// A child process that acquires, holds and releases locks on command.
pub(crate) struct Process {
    cx: Cx,
    child: Child,
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
