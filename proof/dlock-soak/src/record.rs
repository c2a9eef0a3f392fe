//! The whole history of a run as JSON lines: the actions of the processes, the injected faults, and
//! the writes that reached the resource.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write as _},
    path::Path,
    time::Duration,
};

use dlock_core::Instant;
use dlock_testkit::{Stop, Verdict};
use serde::{Deserialize, Serialize};

use super::{
    line::{Line, wire},
    resource::Write,
};

/// One line of the history. Each variant has a field that no other variant has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Record {
    Did(Line),
    Fault(FaultRecord),
    Excuse(Excuse),
    Wrote(Write),
    Broke(Broke),
    Run(Run),
}

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultRecord {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    /// The time at which it ended.
    #[serde(with = "wire::nanos")]
    pub(super) until: Instant,
    pub(super) fault: String,
    /// The process that it was injected into, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) process: Option<usize>,
}

/// The name of the fault that kills a process.
pub(super) const KILL: &str = "holder-kill";

/// A time after which a store may have lost its record of holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Excuse {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    #[serde(with = "wire::nanos")]
    pub(super) excused_until: Instant,
    /// The grants that it has lost. Without this list, it may have lost any that began before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<Vec<LostGrant>>,
    /// Whether the store grants nothing until the leases of the lost grants are over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_guarded: bool,
}

/// A grant that a store has lost, or whose lease it has cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostGrant {
    /// The lock.
    pub name: String,
    /// The first and the last token of the grant.
    pub tokens: (u64, u64),
    /// The time at which its lease would have ended.
    #[serde(with = "wire::nanos")]
    pub until: Instant,
}

/// A failure that no process may have: it panicked, exited unexpectedly, or did not end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broke {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    pub(super) process: usize,
    pub(super) broke: String,
}

/// The properties of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    #[serde(rename = "at", with = "wire::nanos")]
    pub(super) began: Instant,
    /// The names of the locks.
    #[serde(rename = "run")]
    pub(super) names: Vec<String>,
    pub(super) longest_lease: Duration,
    /// For how long the store keeps a lock whose lease has ended and that was not released.
    #[serde(default)]
    pub(super) lock_delay: Duration,
    /// Whether the history contains every fault.
    pub(super) faults_noted: bool,
    /// The time at which the last fault ended.
    #[serde(with = "wire::nanos")]
    pub(super) calm: Instant,
    /// The time from which no attempt may fail or wait for long.
    #[serde(with = "wire::nanos")]
    pub(super) well: Instant,
    #[serde(with = "wire::nanos")]
    pub(super) ended: Instant,
}

impl Run {
    pub(super) const fn of_nothing() -> Self {
        let never = Instant::from_nanos(0);
        Self {
            began: never,
            names: Vec::new(),
            longest_lease: Duration::ZERO,
            lock_delay: Duration::ZERO,
            faults_noted: true,
            calm: never,
            well: never,
            ended: never,
        }
    }
}

impl Record {
    pub(super) fn at(&self) -> Instant {
        match self {
            Self::Did(line) => line.at,
            Self::Fault(fault) => fault.at,
            Self::Excuse(excuse) => excuse.at,
            Self::Wrote(write) => write.at,
            Self::Broke(broke) => broke.at,
            Self::Run(run) => run.began,
        }
    }
}

/// Writes a history into a new file.
pub(super) fn write(records: &[Record], file: &Path) -> Verdict {
    let mut out = BufWriter::new(File::create(file)?);
    for record in records {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Reads a history.
pub(super) fn read(file: &Path) -> Result<Vec<Record>, Stop> {
    let mut records = Vec::new();
    for line in BufReader::new(File::open(file)?).lines() {
        let line = line?;
        let bad = |error| Stop::failed(format!("not a line of a history: {line:?}: {error}"));
        records.push(serde_json::from_str(&line).map_err(bad)?);
    }
    Ok(records)
}
