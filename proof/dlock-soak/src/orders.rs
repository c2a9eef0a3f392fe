//! The orders that a child receives before it begins.

use std::time::Duration;

use dlock_testkit::{Stop, Verdict};

use super::plan::Target;

/// The orders of the parent.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) process: usize,
    pub(super) store: String,
    pub(super) log: String,
    pub(super) resource: String,
    pub(super) seed: u64,
    pub(super) tasks: usize,
    pub(super) lease: Duration,
    pub(super) cancels: u32,
    pub(super) targets: Vec<Target>,
}

impl Orders {
    /// Applies one line.
    pub(super) fn take(&mut self, line: &str) -> Verdict {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "process" => self.process = rest.parse()?,
            "store" => rest.clone_into(&mut self.store),
            "log" => rest.clone_into(&mut self.log),
            "resource" => rest.clone_into(&mut self.resource),
            "seed" => self.seed = rest.parse()?,
            "tasks" => self.tasks = rest.parse()?,
            "lease" => self.lease = Duration::from_millis(rest.parse()?),
            "cancels" => self.cancels = rest.parse()?,
            "lock" => self.targets.push(rest.parse()?),
            _ => return Err(Stop::failed(format!("no such order: {line}"))),
        }
        Ok(())
    }
}
