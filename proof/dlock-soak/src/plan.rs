//! The work of the holder processes, and the lines in which the parent sends it to a child.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use dlock_testkit::{Stop, Verdict};

use super::line::Wanted;

/// The work that processes of holders do on a few locks until the test ends them.
#[derive(Clone, Debug)]
pub struct Load {
    pub(super) processes: usize,
    pub(super) tasks: usize,
    pub(super) leases: Vec<Duration>,
    pub(super) lock_delay: Duration,
    /// The percentage of attempts that are cancelled.
    pub(super) cancels: u32,
    /// The percentage of holds that last for about a lease or longer.
    pub(super) long: u32,
    pub(super) targets: Vec<Target>,
    pub(super) env: Vec<(String, String)>,
    pub(super) faults_noted: bool,
    /// The program that every second process runs instead of this one.
    pub(super) old: Option<PathBuf>,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A mutex, with and without local hand-off.
    Mutex,
    /// A fair lock. It is left out if the store does not support it.
    Fair,
    /// A read-write lock. Some writers downgrade to readers.
    ReadWrite,
    /// A semaphore with this number of permits, of which a claim takes one or two. It is left out
    /// if the store does not support it.
    Semaphore(u32),
    /// A multi-lock over mutexes of all the names.
    Multi,
    /// As [`Multi`](Self::Multi), over the mutexes of two clients in turn.
    Across,
    /// A reentrant lock, which some holders enter again.
    Reentrant,
    /// A job with this minimum time, or without one if the store keeps nothing for a process that
    /// has ended. Its work is judged exactly only in a simulation: elsewhere, a process may be
    /// stopped within a step of the work.
    Job(Duration),
    /// An election, whose leader works for a while, as a job does.
    Election,
}

/// A lock that the processes acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// The names: one, unless it is a multi-lock.
    pub(super) names: Vec<String>,
}

impl Load {
    /// Returns a load of four processes with four tasks each, on a mix of all kinds of locks. The
    /// names begin with this prefix. The leases are 300 to 500 ms.
    pub fn new(prefix: &str) -> Self {
        let name = |last: &str| format!("{prefix}/{last}");
        let bare = Self {
            processes: 4,
            tasks: 4,
            leases: [300, 400, 500].map(Duration::from_millis).into(),
            lock_delay: Duration::ZERO,
            cancels: 15,
            long: 5,
            targets: Vec::new(),
            env: Vec::new(),
            faults_noted: false,
            old: None,
        };
        bare.with_lock(Kind::Mutex, &[&name("a")])
            .with_lock(Kind::Fair, &[&name("a")])
            .with_lock(Kind::Mutex, &[&name("b")])
            .with_lock(Kind::Multi, &[&name("a"), &name("b")])
            .with_lock(Kind::ReadWrite, &[&name("c")])
            .with_lock(Kind::Semaphore(3), &[&name("d")])
    }

    /// Sets the number of processes.
    #[must_use]
    pub fn with_processes(mut self, processes: usize) -> Self {
        self.processes = processes.max(1);
        self
    }

    /// Sets the number of tasks in each process.
    #[must_use]
    pub fn with_tasks(mut self, tasks: usize) -> Self {
        self.tasks = tasks.max(1);
        self
    }

    /// Sets the leases; each process uses the next one in turn.
    ///
    /// # Panics
    /// If the list is empty.
    #[must_use]
    pub fn with_leases(mut self, leases: &[Duration]) -> Self {
        assert!(!leases.is_empty(), "a lock needs a lease");
        self.leases = leases.to_vec();
        self
    }

    /// Sets the lock-delay.
    #[must_use]
    pub fn with_lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Sets the percentage of attempts that are cancelled.
    #[must_use]
    pub fn with_cancels(mut self, percent: u32) -> Self {
        self.cancels = percent.min(100);
        self
    }

    /// Sets the percentage of holds that last for about a lease or longer, while faults are injected.
    #[must_use]
    pub fn with_long_holds(mut self, percent: u32) -> Self {
        self.long = percent.min(100);
        self
    }

    /// Adds a lock. Kinds that exclude each other in the same way may share a name.
    #[must_use]
    pub fn with_lock(mut self, kind: Kind, names: &[&str]) -> Self {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        self.targets.push(Target { kind, names });
        self
    }

    /// Adds this number of mutexes whose names begin with the prefix.
    #[must_use]
    pub fn with_mutexes(self, prefix: &str, count: usize) -> Self {
        (0..count).fold(self, |load, n| load.with_lock(Kind::Mutex, &[&format!("{prefix}/{n}")]))
    }

    /// Adds a variable to the environment of the processes.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs this program, the command `dlock-soak` of an older version, in every second process.
    #[must_use]
    pub fn with_old(mut self, program: Option<PathBuf>) -> Self {
        self.old = program;
        self
    }

    /// Declares that the test [notes](crate::Running::note) every fault of the store and of the
    /// network. Then the checks for times without faults also apply between the faults, not only
    /// after the last one.
    #[must_use]
    pub fn with_faults_noted(mut self) -> Self {
        self.faults_noted = true;
        self
    }

    /// Removes all locks; later calls can add others.
    #[must_use]
    pub fn without_locks(mut self) -> Self {
        self.targets.clear();
        self
    }

    /// Returns how long a lock of a dead holder stays unavailable: the longest lease with the
    /// lock-delay.
    pub fn longest_lease(&self) -> Duration {
        self.leases.iter().copied().max().unwrap_or_default() + self.lock_delay
    }

    /// Returns the names of the locks.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.targets.iter().flat_map(|target| target.names.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the program that the process with this number runs, if it is not this program.
    pub(super) fn program(&self, number: usize) -> Option<&Path> {
        self.old.as_deref().filter(|_| number % 2 == 1)
    }

    /// Returns the lines that the parent sends to the process with this number, one for each
    /// option.
    pub(super) fn lines(&self, number: usize) -> Vec<String> {
        let lease = self.leases[number % self.leases.len()].as_millis();
        let mut lines = vec![
            format!("process {number}"),
            format!("tasks {}", self.tasks),
            format!("lease {lease}"),
            format!("delay {}", self.lock_delay.as_millis()),
            format!("cancels {}", self.cancels),
            format!("long {}", self.long),
        ];
        for target in &self.targets {
            let kind = match target.kind {
                Kind::Mutex => "mutex".to_owned(),
                Kind::Fair => "fair".to_owned(),
                Kind::ReadWrite => "rw".to_owned(),
                Kind::Semaphore(permits) => format!("semaphore={permits}"),
                Kind::Multi => "multi".to_owned(),
                Kind::Across => "across".to_owned(),
                Kind::Reentrant => "reentrant".to_owned(),
                Kind::Job(at_least) => format!("job={}", at_least.as_millis()),
                Kind::Election => "election".to_owned(),
            };
            lines.push(format!("lock {kind} {}", target.names.join(" ")));
        }
        lines
    }
}

impl Kind {
    pub(super) fn wanted(self) -> Wanted {
        match self {
            Self::Mutex => Wanted::Mutex,
            Self::Fair => Wanted::Fair,
            Self::ReadWrite => Wanted::ReadWrite,
            Self::Semaphore(_) => Wanted::Semaphore,
            Self::Multi | Self::Across => Wanted::Multi,
            Self::Reentrant => Wanted::Reentrant,
            Self::Job(_) => Wanted::Job,
            Self::Election => Wanted::Election,
        }
    }
}

impl FromStr for Target {
    type Err = Stop;

    /// Reads `KIND NAME...`.
    fn from_str(text: &str) -> Result<Self, Stop> {
        let (kind, names) = text.split_once(' ').ok_or_else(|| Stop::failed("no name"))?;
        let kind = match kind.split_once('=') {
            Some(("semaphore", permits)) => Kind::Semaphore(permits.parse()?),
            Some(("job", ms)) => Kind::Job(Duration::from_millis(ms.parse()?)),
            _ => match kind {
                "mutex" => Kind::Mutex,
                "fair" => Kind::Fair,
                "rw" => Kind::ReadWrite,
                "multi" => Kind::Multi,
                "across" => Kind::Across,
                "reentrant" => Kind::Reentrant,
                "election" => Kind::Election,
                _ => return Err(Stop::failed(format!("no kind of lock: {kind}"))),
            },
        };
        Ok(Self { kind, names: names.split(' ').map(str::to_owned).collect() })
    }
}

/// The orders that a child receives from the parent before it begins.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) process: usize,
    pub(super) store: String,
    pub(super) log: String,
    pub(super) resource: String,
    pub(super) seed: u64,
    pub(super) tasks: usize,
    pub(super) lease: Duration,
    pub(super) lock_delay: Duration,
    pub(super) cancels: u32,
    pub(super) long: u32,
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
            "delay" => self.lock_delay = Duration::from_millis(rest.parse()?),
            "cancels" => self.cancels = rest.parse()?,
            "long" => self.long = rest.parse()?,
            "lock" => self.targets.push(rest.parse()?),
            _ => return Err(Stop::failed(format!("no such order: {line}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_process_runs_the_older_program() {
        let load = Load::new("x");
        assert!((0..9).all(|number| load.program(number).is_none()));
        let load = load.with_old(Some("old".into()));
        let old = (0..10).filter(|number| load.program(*number) == Some(Path::new("old")));
        assert_eq!(old.count(), 5);
    }

    #[test]
    fn a_child_reads_what_it_is_to_take() {
        let load = Load::new("x")
            .with_lock(Kind::Reentrant, &["x/b"])
            .with_lock(Kind::Across, &["x/a", "x/b"])
            .with_lock(Kind::Job(Duration::from_secs(1)), &["x/b"])
            .with_lock(Kind::Election, &["x/b"]);
        let lines = load.clone().with_mutexes("y", 64).lines(1);
        assert_eq!(lines.iter().filter(|line| line.starts_with("lock mutex y/")).count(), 64);
        let lines = load.lines(1);
        let locks = lines.iter().filter_map(|line| line.strip_prefix("lock "));
        let read: Vec<Target> = locks.map(|text| text.parse().unwrap()).collect();
        assert_eq!(read, load.targets);
        assert!(lines.contains(&"lease 400".to_owned()));
        assert_eq!(load.names(), ["x/a", "x/b", "x/c", "x/d"]);
    }
}
