//! The parent's side: it starts the processes and collects their logs.

use std::time::Duration;

use dlock_core::Instant;
use dlock_testkit::{Stop, support::now};
use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    Load, Report,
    line::{CANCELLED, Phase, What},
    process::{Files, Process},
    record::{Broke, Record, Run},
    resource::Resource,
};

/// The time until all clients must work again: failovers are noticed, and connections are made.
const RECOVERY: Duration = Duration::from_millis(1500);
/// The length of the phase in which no attempt may fail or wait for long.
const PEACE: Duration = Duration::from_millis(2000);
/// The variable that makes the parent keep the logs of the processes and print their directory.
const KEEP: &str = "DLOCK_TEST_KEEP";

/// Processes that acquire and release locks. They are killed when this is dropped.
///
/// If `DLOCK_TEST_KEEP` is set, the logs of the processes are kept and their directory is printed.
#[derive(Debug)]
pub struct Running {
    load: Load,
    address: String,
    directory: TempDir,
    resource: Resource,
    pub(super) processes: Vec<Process>,
    /// The processes that were killed.
    pub(super) dead: Vec<(usize, Files)>,
    /// The injected faults and the failures of processes.
    pub(super) story: Mutex<Vec<Record>>,
    began: Instant,
    seed: u64,
    started: usize,
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
            story: Mutex::default(),
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

    /// Returns the number of running processes.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Returns the number of grants so far.
    pub fn grants(&self) -> usize {
        self.count(|what| matches!(what, What::Got { .. }))
    }

    /// Returns the number of locks granted so far to processes of the older program.
    pub fn grants_of_old(&self) -> usize {
        let old = self.files().filter(|(number, _)| self.load.program(*number).is_some());
        let lines = old.flat_map(|(_, files)| files.lines().unwrap_or_default());
        lines.filter(|line| matches!(line.what, What::Got { .. })).count()
    }

    /// Returns the number of cancelled attempts so far.
    pub fn cancelled(&self) -> usize {
        self.count(|what| matches!(what, What::Not { how, .. } if how == CANCELLED))
    }

    fn count(&self, of: impl Fn(&What) -> bool) -> usize {
        // A log that can't be read is reported at the end.
        let lines = self.files().flat_map(|(_, files)| files.lines().unwrap_or_default());
        lines.filter(|line| of(&line.what)).count()
    }

    /// Returns the files of each process, including those that were killed.
    fn files(&self) -> impl Iterator<Item = (usize, &Files)> {
        let alive = self.processes.iter().map(|process| (process.number, &process.files));
        alive.chain(self.dead.iter().map(|(number, files)| (*number, files)))
    }

    /// Lets the processes continue without faults, ends them, and collects their logs. When it is
    /// called, all faults must be over. If a process exited unexpectedly or does not end, the
    /// report contains a violation.
    ///
    /// # Errors
    /// If a replacement process does not start, or if a log can't be read.
    pub async fn finish(mut self) -> Result<Report, Stop> {
        // On a busy machine, a replacement process may not have started yet.
        try_join_all(self.processes.iter_mut().map(Process::ready)).await?;
        let calm = now();
        self.tell(Phase::Calm).await;
        sleep(RECOVERY).await;
        let well = now();
        self.tell(Phase::Well).await;
        sleep(PEACE).await;
        self.tell(Phase::End).await;
        let ends = join_all(self.processes.iter_mut().map(Process::done)).await;
        for (process, end) in self.processes.iter().zip(ends) {
            if let Err(stop) = end {
                self.broke(process.number, stop.into_text());
            }
        }
        self.report(calm, well)
    }

    fn report(&mut self, calm: Instant, well: Instant) -> Result<Report, Stop> {
        if std::env::var_os(KEEP).is_some() {
            self.directory.disable_cleanup(true);
            println!("the logs are in {}", self.directory.path().display());
        }
        let mut records = Vec::new();
        for (number, files) in self.files() {
            records.extend(files.lines()?.into_iter().map(Record::Did));
            if let Some(panic) = files.panic() {
                self.broke(number, panic);
            }
        }
        records.extend(self.resource.close()?.into_iter().map(Record::Wrote));
        records.append(&mut self.story.lock());
        records.push(Record::Run(Run {
            began: self.began,
            names: self.load.names(),
            longest_lease: self.load.longest_lease(),
            faults_noted: self.load.faults_noted,
            calm,
            well,
            ended: now(),
        }));
        Report::of(records)
    }

    fn broke(&self, process: usize, broke: String) {
        self.story.lock().push(Record::Broke(Broke { at: now(), process, broke }));
    }

    /// Starts one more process.
    pub(super) async fn begin(&mut self) -> Result<Process, Stop> {
        let number = self.started;
        self.started += 1;
        let old = self.load.program(number);
        let mut process = Process::begin(number, self.directory.path(), &self.load.env, old)?;
        let mut lines = self.load.lines(number);
        lines.push(format!("store {}", self.address));
        lines.push(format!("log {}", process.files.log.display()));
        lines.push(format!("resource {}", self.resource.path().display()));
        lines.push(format!("seed {}", self.seed.wrapping_add(number as u64)));
        lines.push("go".to_owned());
        process.tell(&lines.join("\n")).await?;
        Ok(process)
    }

    async fn tell(&mut self, phase: Phase) {
        for process in &mut self.processes {
            // If the process has exited, [`Process::done`] reports it later.
            let _ = process.tell(&phase.to_string()).await;
        }
    }
}
