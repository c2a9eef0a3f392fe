//! The whole story of a run, as JSON lines: what the processes did, what was done to them, and what
//! reached the resource.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write as _},
    path::Path,
    time::Duration,
};

use dlock_core::Instant;
use dlock_testkit::{Stop, Verdict};
use serde::{Deserialize, Serialize};

use super::{line::Line, resource::Write, wire};

/// One line of the story. Each kind has a field that no other has.
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

/// Harm that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultRecord {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    /// When it was over.
    #[serde(with = "wire::nanos")]
    pub(super) until: Instant,
    pub(super) fault: String,
    /// To which process, if it was to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) process: Option<usize>,
}

/// By this name a process was killed.
pub(super) const KILL: &str = "holder-kill";

/// A time after which a store may have forgotten whom it promised a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Excuse {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    #[serde(with = "wire::nanos")]
    pub(super) excused_until: Instant,
}

/// What a process must never do: panic, end by itself, or not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broke {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    pub(super) process: usize,
    pub(super) broke: String,
}

/// What the run was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    #[serde(rename = "at", with = "wire::nanos")]
    pub(super) began: Instant,
    /// The names of the locks.
    #[serde(rename = "run")]
    pub(super) names: Vec<String>,
    pub(super) longest_lease: Duration,
    /// Whether every fault is in the story.
    pub(super) faults_noted: bool,
    /// When the harm was over.
    #[serde(with = "wire::nanos")]
    pub(super) calm: Instant,
    /// From when on all had to be well.
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

/// Writes a story into a new file.
pub(super) fn write(records: &[Record], file: &Path) -> Verdict {
    let mut out = BufWriter::new(File::create(file)?);
    for record in records {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Reads one.
pub(super) fn read(file: &Path) -> Result<Vec<Record>, Stop> {
    let mut records = Vec::new();
    for line in BufReader::new(File::open(file)?).lines() {
        let line = line?;
        let bad = |error| Stop::failed(format!("not a line of a history: {line:?}: {error}"));
        records.push(serde_json::from_str(&line).map_err(bad)?);
    }
    Ok(records)
}
