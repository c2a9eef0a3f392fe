//! Faults of the processes, each with proof that it took effect, and notes of other faults.

use std::time::Duration;

use dlock_core::Instant;
use dlock_testkit::{
    Stop, Verdict,
    support::{ensure, now},
};
use futures_util::future::try_join_all;

use super::{
    Running,
    process::Process,
    record::{Excuse, FaultRecord, KILL, Record},
};

/// The longest delay with which a message that the store sent before a fault may still arrive.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

impl Running {
    /// Kills one of the processes without a chance to clean up. Starts another one as a
    /// replacement.
    ///
    /// # Errors
    /// If it had already exited, or if the replacement can't be started.
    pub async fn kill_one(&mut self) -> Verdict {
        let at = self.any();
        let new = self.begin().await?;
        let mut old = std::mem::replace(&mut self.processes[at], new);
        let (number, files) = (old.number, old.files.clone());
        self.dead.push((number, files));
        let killed = old.kill().await?;
        self.done(KILL, killed, Some(number));
        Ok(())
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
        self.story.lock().push(Record::Excuse(Excuse { at, excused_until }));
    }

    fn done(&self, fault: &str, at: Instant, process: Option<usize>) {
        let fault = FaultRecord { at, until: now(), fault: fault.to_owned(), process };
        self.story.lock().push(Record::Fault(fault));
    }

    fn any(&self) -> usize {
        rand::random_range(0..self.processes.len())
    }
}
