//! The parent's side: it starts the processes, does them harm, and gathers what they wrote.

use std::{path::PathBuf, process::Stdio, time::Duration};

use dlock_core::Instant;
use futures_util::future::try_join_all;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};

use super::{Load, Report, belief, child::CHILD, line::Phase, resource::Resource};
use crate::{Stop, Verdict, context::now};

/// How long it may take until all is well again: failovers are noticed, connections made.
const RECOVERY: Duration = Duration::from_millis(1500);
/// For how long nobody may fail or wait for long then.
const PEACE: Duration = Duration::from_millis(2000);
/// Keeps what the processes wrote, and says where.
const KEEP: &str = "DLOCK_TEST_KEEP";
/// How long a process may take to begin or to end.
const BOUND: Duration = Duration::from_secs(40);

/// Processes that take and let go of locks. Dropped, they are killed.
///
/// With `DLOCK_TEST_KEEP` set, the logs of the processes are kept, and where they are is printed.
#[derive(Debug)]
pub struct Running {
    load: Load,
    address: String,
    directory: TempDir,
    resource: Resource,
    processes: Vec<Process>,
    /// Where those wrote that were killed, and when that was.
    dead: Vec<(PathBuf, Instant)>,
    began: Instant,
    seed: u64,
    started: usize,
}

#[derive(Debug)]
struct Process {
    log: PathBuf,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    is_ready: bool,
}

impl Running {
    pub(super) async fn start(load: Load, address: &str) -> Result<Self, Stop> {
        let directory = tempfile::Builder::new().prefix("dlock-load-").tempdir()?;
        let mut running = Self {
            load,
            address: address.to_owned(),
            resource: Resource::open(directory.path())?,
            directory,
            processes: Vec::new(),
            dead: Vec::new(),
            began: now(),
            seed: rand::random(),
            started: 0,
        };
        for _ in 0..running.load.processes {
            let process = running.begin().await?;
            running.processes.push(process);
        }
        try_join_all(running.processes.iter_mut().map(Process::ready)).await?;
        running.began = now();
        Ok(running)
    }

    /// How many processes run.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Kills one of the processes without a chance to clean up; another begins in its place.
    ///
    /// # Errors
    /// When there is no other to be had.
    pub async fn kill_one(&mut self) -> Verdict {
        let at = rand::random_range(0..self.processes.len());
        let new = self.begin().await?;
        let mut old = std::mem::replace(&mut self.processes[at], new);
        // Whoever was killed did not believe for longer than this.
        let killed = now();
        old.child.kill().await?;
        self.dead.push((old.log, killed));
        Ok(())
    }

    /// Stops one of the processes where it stands, for so long.
    ///
    /// # Errors
    /// When it has ended by itself.
    pub async fn stop_one(&self, time: Duration) -> Verdict {
        let process = &self.processes[rand::random_range(0..self.processes.len())];
        process.signal(Signal::STOP)?;
        sleep(time).await;
        process.signal(Signal::CONT)
    }

    /// Lets the processes go on in peace, has them end, and gathers what they wrote. Everything
    /// has to be well by now.
    ///
    /// # Errors
    /// When a process has ended by itself, or does not end: then what it waited for is named.
    pub async fn finish(mut self) -> Result<Report, Stop> {
        // On a busy machine, one that took the place of another may not have begun yet.
        try_join_all(self.processes.iter_mut().map(Process::ready)).await?;
        let stormy = now().since(self.began);
        self.tell(Phase::Calm).await?;
        sleep(RECOVERY).await;
        self.tell(Phase::Well).await?;
        sleep(PEACE).await;
        self.tell(Phase::End).await?;
        let ends = try_join_all(self.processes.iter_mut().map(Process::done)).await;
        let report = self.report(stormy)?;
        match ends {
            Ok(_) => Ok(report),
            Err(stop) => Err(Stop::failed(format!("{}; {report}", stop.into_text()))),
        }
    }

    fn report(&mut self, stormy: Duration) -> Result<Report, Stop> {
        if std::env::var_os(KEEP).is_some() {
            self.directory.disable_cleanup(true);
            println!("the logs are in {}", self.directory.path().display());
        }
        let alive = self.processes.iter().map(|process| (&process.log, None));
        let dead = self.dead.iter().map(|(log, at)| (log, Some(*at)));
        let mut tales = Vec::new();
        for (number, (log, killed)) in alive.chain(dead).enumerate() {
            // One that was killed early may have written nothing.
            let text = std::fs::read_to_string(log).unwrap_or_default();
            tales.extend(belief::read(&text, number, killed)?);
        }
        let writes = self.resource.close()?;
        Ok(Report::of(tales, writes, self.load.names(), stormy, self.dead.len()))
    }

    /// Starts this binary again as a child.
    async fn begin(&mut self) -> Result<Process, Stop> {
        let number = self.started;
        self.started += 1;
        let mut child = Command::new(std::env::current_exe()?)
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let piped = || Stop::failed("the child has no pipe");
        let input = child.stdin.take().ok_or_else(piped)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(piped)?).lines();
        let log = self.directory.path().join(format!("{number}.log"));
        let mut process = Process { log, child, input, output, is_ready: false };
        let mut lines = self.load.lines(number);
        lines.push(format!("store {}", self.address));
        lines.push(format!("log {}", process.log.display()));
        lines.push(format!("resource {}", self.resource.path().display()));
        lines.push(format!("seed {}", self.seed.wrapping_add(number as u64)));
        lines.push("go".to_owned());
        process.tell(&lines.join("\n")).await?;
        Ok(process)
    }

    async fn tell(&mut self, phase: Phase) -> Verdict {
        for process in &mut self.processes {
            process.tell(&phase.to_string()).await?;
        }
        Ok(())
    }
}

impl Process {
    async fn tell(&mut self, what: &str) -> Verdict {
        self.input.write_all(format!("{what}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    async fn ready(&mut self) -> Verdict {
        if !self.is_ready {
            self.hear("ready").await?;
            self.is_ready = true;
        }
        Ok(())
    }

    async fn done(&mut self) -> Verdict {
        self.hear("done").await
    }

    async fn hear(&mut self, what: &str) -> Verdict {
        match timeout(BOUND, self.output.next_line()).await {
            Ok(line) => match line? {
                Some(line) if line == what => Ok(()),
                Some(line) => Err(Stop::failed(format!("a process says: {line}"))),
                None => Err(Stop::failed("a process has ended by itself")),
            },
            Err(_) => Err(Stop::failed(format!("a process is not {what} within {BOUND:?}"))),
        }
    }

    fn signal(&self, signal: Signal) -> Verdict {
        let gone = || Stop::failed("a process has ended by itself");
        let id = i32::try_from(self.child.id().ok_or_else(gone)?)?;
        Ok(kill_process(Pid::from_raw(id).ok_or_else(gone)?, signal)?)
    }
}
