//! The parent's side: it starts the processes, injects faults into them, each with proof that the
//! fault took effect, and collects their logs.

use std::time::Duration;

use dlock_core::Instant;
use dlock_testkit::{
    Stop, Verdict,
    support::{ensure, now},
};
use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    line::{CANCELLED, Phase, What},
    plan::Load,
    process::{Files, Process},
    record::{Broke, Excuse, FaultRecord, KILL, Record, Run},
    report::Report,
    resource::Resource,
};

/// The time until all clients must work again: failovers are noticed, and connections are made.
const RECOVERY: Duration = Duration::from_millis(1500);
/// The length of the phase in which no attempt may fail or wait for long.
const PEACE: Duration = Duration::from_millis(2000);
/// The variable that makes the parent keep the logs of the processes and print their directory.
const KEEP: &str = "DLOCK_TEST_KEEP";
/// The longest delay with which a message that the store sent before a fault may still arrive.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// Processes that acquire and release locks. They are killed when this is dropped.
///
/// If `DLOCK_TEST_KEEP` is set, the logs of the processes are kept and their directory is printed.
#[derive(Debug)]
pub struct Running {
    load: Load,
    address: String,
    directory: TempDir,
    resource: Resource,
    processes: Vec<Process>,
    /// The processes that were killed.
    dead: Vec<(usize, Files)>,
    /// The injected faults and the failures of processes.
    story: Mutex<Vec<Record>>,
    began: Instant,
    seed: u64,
    started: usize,
}

impl Load {
    /// Starts the processes, each of which connects to the store at this address.
    ///
    /// # Errors
    /// If one of them can't connect.
    pub async fn start(self, address: &str) -> Result<Running, Stop> {
        Running::start(self, address).await
    }
}

impl Running {
    async fn start(load: Load, address: &str) -> Result<Self, Stop> {
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

    /// Returns the time at which all processes had begun.
    pub fn began(&self) -> Instant {
        self.began
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
            lock_delay: self.load.lock_delay,
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
    async fn begin(&mut self) -> Result<Process, Stop> {
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

impl Running {
    /// Kills one of the processes without a chance to clean up. Starts another one as a
    /// replacement.
    ///
    /// # Errors
    /// If it had already exited, which the report contains as a violation, or if the replacement
    /// can't be started.
    pub async fn kill_one(&mut self) -> Verdict {
        let at = self.any();
        let new = self.begin().await?;
        let mut old = std::mem::replace(&mut self.processes[at], new);
        let (number, files) = (old.number, old.files.clone());
        self.dead.push((number, files));
        match old.kill().await {
            Ok(killed) => {
                self.done(KILL, killed, Some(number));
                Ok(())
            }
            Err(stop) => {
                // Its replacement takes its place, so it would not be reported at the end.
                let text = stop.into_text();
                self.broke(number, text.clone());
                Err(Stop::failed(text))
            }
        }
    }

    /// Stops one of the processes for this time. A concurrent call stops another process.
    ///
    /// # Errors
    /// If one of its threads did not stop, if it has exited, or if all processes are stopped.
    pub async fn stop_one(&self, time: Duration) -> Verdict {
        let (first, at) = (self.any(), now());
        let mut processes = self.processes.iter().cycle().skip(first).take(self.processes.len());
        let process = processes.find(|process| process.may_stop());
        let process = process.ok_or_else(|| Stop::failed("all processes are stopped already"))?;
        process.stop(time).await?;
        self.done("holder-stop", at, Some(process.number));
        Ok(())
    }

    /// Blocks all threads of the runtime of one of the processes for this time, so that no timer
    /// fires and no lease is renewed.
    ///
    /// # Errors
    /// If they were not all blocked together for at least half of the time.
    pub async fn stall_one(&mut self, time: Duration) -> Verdict {
        let (one, at) = (self.any(), now());
        let process = &mut self.processes[one];
        let order = format!("stall {}", time.as_millis());
        let nanos = process.order(&order, "stalled", time).await?;
        let (stalled, number) = (Duration::from_nanos(nanos), process.number);
        ensure!(stalled >= time / 2, "a process was stalled for {stalled:?} instead of {time:?}");
        self.done("holder-stall", at, Some(number));
        Ok(())
    }

    /// Aborts all tasks of one of the processes, with their guards and their waits, and starts
    /// others. Returns the number of aborted tasks.
    ///
    /// # Errors
    /// If no task was aborted.
    pub async fn abort_one(&mut self) -> Result<usize, Stop> {
        let (one, at) = (self.any(), now());
        let process = &mut self.processes[one];
        let (aborted, number) =
            (process.order("abort", "aborted", Duration::ZERO).await?, process.number);
        ensure!(aborted > 0, "a process had no task to abort");
        self.done("holder-abort", at, Some(number));
        Ok(usize::try_from(aborted)?)
    }

    /// Cancels this percentage of the attempts of all processes for this time. Returns the number
    /// of cancelled attempts.
    ///
    /// # Errors
    /// If no attempt was cancelled.
    pub async fn cancel_storm(&mut self, percent: u32, time: Duration) -> Result<usize, Stop> {
        let at = now();
        let order = format!("cancels {} {}", percent.min(100), time.as_millis());
        let order = &order;
        let ask = |process| async move { Process::order(process, order, "cancelled", time).await };
        let dropped: u64 = try_join_all(self.processes.iter_mut().map(ask)).await?.iter().sum();
        ensure!(dropped > 0, "nobody changed its mind within {time:?}");
        for process in &self.processes {
            self.done("cancel-storm", at, Some(process.number));
        }
        Ok(usize::try_from(dropped)?)
    }

    /// Notes a fault of the store or of the network at this moment.
    pub fn note(&self, fault: &str, at: Instant) {
        self.note_span(fault, at, at);
    }

    /// Notes a fault of the store or of the network between these moments.
    pub fn note_span(&self, fault: &str, at: Instant, until: Instant) {
        let fault = fault.to_owned();
        self.story.lock().push(Record::Fault(FaultRecord { at, until, fault, process: None }));
    }

    /// Declares that the store lost data between these moments, or let leases expire too early. If
    /// a hold began before `until`, comparisons of holds treat it as ended at `at`. The checks
    /// of tokens and of the resource do not change.
    pub fn excuse(&self, at: Instant, until: Instant) {
        let excused_until = until.saturating_add(ON_ITS_WAY);
        self.story.lock().push(Record::Excuse(Excuse::of_any(at, excused_until)));
    }

    fn done(&self, fault: &str, at: Instant, process: Option<usize>) {
        let fault = FaultRecord { at, until: now(), fault: fault.to_owned(), process };
        self.story.lock().push(Record::Fault(fault));
    }

    fn any(&self) -> usize {
        rand::random_range(0..self.processes.len())
    }
}
