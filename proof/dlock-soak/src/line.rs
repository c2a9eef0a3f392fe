//! One line of a process's log: a JSON object.
//!
//! ```text
//! {"process":3,"hold":17,"at":1,"did":"ask","task":0,"kind":"fair","phase":"storm","mode":"x","name":"a"}
//! {"process":3,"hold":17,"at":5,"did":"got","token":7,"until":90}
//! ```
//!
//! Times are nanoseconds of the clock that all processes share.

use std::{fmt, str::FromStr};

use dlock_core::{FencingToken, Instant, Mode};
use dlock_testkit::Stop;
use serde::{Deserialize, Serialize};

/// One line: an event of one acquisition of a process, or of the process itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(super) process: usize,
    /// The number of the acquisition within the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<u64>,
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    #[serde(flatten)]
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "did", rename_all = "lowercase")]
pub(crate) enum What {
    /// An attempt begins.
    Ask {
        task: usize,
        kind: Wanted,
        phase: Phase,
        #[serde(with = "wire::mode")]
        mode: Mode,
        name: String,
    },
    /// The store was unreachable, and the attempt began again.
    Again {},
    /// The lock is granted, and held until this local deadline unless it is renewed.
    Got {
        #[serde(with = "wire::token")]
        token: FencingToken,
        #[serde(with = "wire::nanos")]
        until: Instant,
    },
    /// The lock is still held, until this local deadline.
    Keep {
        #[serde(with = "wire::nanos")]
        until: Instant,
    },
    /// A writer becomes a reader.
    Share {},
    /// The holder was busy, and checks again whether it holds the lock.
    Look {},
    /// The release begins.
    Let {},
    /// The store has promised to keep the lock until then, after the work.
    Promise {
        #[serde(with = "wire::nanos")]
        until: Instant,
    },
    /// The release was answered: released, gone or unknown.
    Left { how: String },
    /// The holder knows that the lock is lost: expired or revoked.
    Lost { how: String },
    /// The attempt failed: busy, timeout, cancelled, or the kind of the error.
    Not { how: String, text: String },
    /// The process did not run since this time, or its timers were late.
    Late {
        #[serde(with = "wire::nanos")]
        since: Instant,
    },
    /// All tasks with numbers below this one are aborted. Their holds count until this line at
    /// most.
    Abort { below: usize },
    /// The number of resources of the system and of the runtime that the process has open.
    Uses { when: When, fds: usize, tasks: usize, threads: usize },
}

/// The kind of lock that an attempt requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    Mutex,
    Fair,
    ReadWrite,
    Semaphore,
    Multi,
    Reentrant,
    Job,
    Election,
}

/// The time at which a process reports its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum When {
    /// After the first second of its work.
    Early,
    /// When all locks are released.
    Idle,
    /// When its client has shut down.
    End,
}

/// The phase of a run, which determines the failures that are excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Faults are injected; everything may fail.
    Storm,
    /// The faults are over; recovery may take time.
    Calm,
    /// No attempt may fail or wait for long.
    Well,
    /// No task begins an attempt.
    End,
}

pub(super) const RELEASED: &str = "released";
pub(super) const GONE: &str = "gone";
pub(super) const UNKNOWN: &str = "unknown";
pub(super) const REVOKED: &str = "revoked";
pub(super) const CLOCK_STEP: &str = "clock-step";
pub(super) const STORE_RESET: &str = "store-reset";
pub(super) const EXPIRED: &str = "expired";
pub(super) const BUSY: &str = "busy";
pub(super) const CANCELLED: &str = "cancelled";
pub(super) const TIMEOUT: &str = "Timeout";
pub(super) const UNAVAILABLE: &str = "Unavailable";
pub(super) const REFUSED: &str = "refused";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Line {
    type Err = Stop;

    fn from_str(text: &str) -> Result<Self, Stop> {
        let bad = |error| Stop::failed(format!("not a line of a log: {text:?}: {error}"));
        serde_json::from_str(text).map_err(bad)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Storm => "storm",
            Self::Calm => "calm",
            Self::Well => "well",
            Self::End => "end",
        })
    }
}

impl FromStr for Phase {
    type Err = Stop;

    fn from_str(text: &str) -> Result<Self, Stop> {
        let all = [Self::Storm, Self::Calm, Self::Well, Self::End];
        let found = all.into_iter().find(|phase| phase.to_string() == text);
        found.ok_or_else(|| Stop::failed(format!("no phase: {text}")))
    }
}

/// The JSON forms of the values in a history: times in nanoseconds, modes in a few letters.
pub(super) mod wire {
    /// A point in time, as nanoseconds of the clock that all processes share.
    pub(crate) mod nanos {
        use dlock_core::Instant;
        use serde::{Deserialize, Deserializer, Serializer};

        pub(crate) fn serialize<S: Serializer>(at: &Instant, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_u64(at.as_nanos())
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Instant, D::Error> {
            u64::deserialize(from).map(Instant::from_nanos)
        }
    }

    /// A fencing token, as a number.
    pub(crate) mod token {
        use dlock_core::FencingToken;
        use serde::{Deserialize, Deserializer, Serializer, de::Error};

        pub(crate) fn serialize<S: Serializer>(
            token: &FencingToken,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            to.serialize_u64(token.get())
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<FencingToken, D::Error> {
            FencingToken::new(u64::deserialize(from)?).map_err(D::Error::custom)
        }
    }

    /// A mode: `x` for exclusive, `s` for shared, `2/3` for two of three permits.
    pub(crate) mod mode {
        use dlock_core::Mode;
        use serde::{Deserialize, Deserializer, Serializer, de::Error};

        pub(crate) fn serialize<S: Serializer>(mode: &Mode, to: S) -> Result<S::Ok, S::Error> {
            match mode {
                Mode::Exclusive => to.serialize_str("x"),
                Mode::Shared => to.serialize_str("s"),
                mode => to.collect_str(&format_args!("{}/{}", mode.weight(), mode.capacity())),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
            let text = String::deserialize(from)?;
            let bad = || D::Error::custom(format_args!("no mode: {text}"));
            let number = |text: &str| text.parse().map_err(|_| bad());
            match (text.as_str(), text.split_once('/')) {
                ("x", _) => Ok(Mode::Exclusive),
                ("s", _) => Ok(Mode::Shared),
                (_, Some((n, of))) => Mode::permits(number(n)?, number(of)?).map_err(|_| bad()),
                _ => Err(bad()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_line_can_be_read() {
        let at = Instant::from_nanos(17);
        let token = FencingToken::new(5).unwrap();
        let mode = Mode::permits(2, 3).unwrap();
        let (name, text) = ("a/b".to_owned(), "no answer\n in \"time\" (lock=a)".to_owned());
        let all = [
            What::Ask { task: 3, kind: Wanted::ReadWrite, phase: Phase::Well, mode, name },
            What::Again {},
            What::Got { token, until: at },
            What::Keep { until: at },
            What::Share {},
            What::Look {},
            What::Let {},
            What::Promise { until: at },
            What::Left { how: GONE.to_owned() },
            What::Lost { how: REVOKED.to_owned() },
            What::Not { how: UNAVAILABLE.to_owned(), text },
            What::Not { how: BUSY.to_owned(), text: String::new() },
            What::Late { since: at },
            What::Abort { below: 4 },
            What::Uses { when: When::Early, fds: 9, tasks: 4, threads: 3 },
        ];
        for what in all {
            for hold in [Some(9), None] {
                let line = Line { process: 1, hold, at, what: what.clone() };
                let text = line.to_string();
                assert!(!text.contains('\n'), "{text}");
                assert_eq!(text.parse::<Line>().unwrap(), line);
            }
        }
    }

    #[test]
    fn others_read_it_too() {
        let text = r#"{"process":3,"hold":17,"at":123,"did":"got","token":5,"until":456}"#;
        assert_eq!(text.parse::<Line>().unwrap().to_string(), text);
    }

    #[test]
    fn an_unreadable_line_is_an_error() {
        for text in [
            "",
            "1 got 5",
            r#"{"process":3,"hold":17,"at":123}"#,
            r#"{"process":3,"hold":17,"did":"let"}"#,
            r#"{"process":3,"hold":17,"at":123,"did":"gets"}"#,
            r#"{"process":3,"hold":17,"at":123,"did":"got","token":0,"until":456}"#,
            r#"{"process":3,"hold":17,"at":123,"did":"got","token":5}"#,
        ] {
            assert!(text.parse::<Line>().is_err(), "{text}");
        }
    }
}

/// Log lines in a short notation, for tests.
///
/// ```text
/// HOLD ask TASK PHASE MODE NS NAME [KIND]
/// HOLD got NS TOKEN UNTIL
/// HOLD keep|promise UNTIL
/// HOLD again|share|look|let NS
/// HOLD left|lost|not NS HOW [TEXT]
/// - late NS SINCE
/// - abort NS BELOW
/// - uses early|idle|end FDS TASKS THREADS
/// ```
#[cfg(test)]
pub(crate) mod short {
    use dlock_core::{FencingToken, Instant};

    use super::{Line, What, wire};

    /// Returns the lines of one process.
    pub(crate) fn lines(process: usize, text: &str) -> Vec<Line> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| read(process, line)).collect()
    }

    fn read(process: usize, text: &str) -> Line {
        let words: Vec<&str> = text.splitn(8, ' ').collect();
        let hold = words[0].parse().ok();
        let at = |text: &str| Instant::from_nanos(text.parse().unwrap());
        let json = |text: &str| format!("\"{text}\"");
        let (at, what) = match words[1..] {
            ["ask", task, phase, mode, ns, name, ref kind @ ..] => {
                let ask = What::Ask {
                    task: task.parse().unwrap(),
                    kind: serde_json::from_str(&json(kind.first().unwrap_or(&"mutex"))).unwrap(),
                    phase: phase.parse().unwrap(),
                    mode: wire::mode::deserialize(serde_json::Value::from(mode)).unwrap(),
                    name: name.to_owned(),
                };
                (at(ns), ask)
            }
            ["got", ns, token, until] => {
                let token = FencingToken::new(token.parse().unwrap()).unwrap();
                (at(ns), What::Got { token, until: at(until) })
            }
            ["keep", until] => (at("0"), What::Keep { until: at(until) }),
            ["promise", until] => (at("0"), What::Promise { until: at(until) }),
            ["again", ns] => (at(ns), What::Again {}),
            ["share", ns] => (at(ns), What::Share {}),
            ["look", ns] => (at(ns), What::Look {}),
            ["let", ns] => (at(ns), What::Let {}),
            ["left", ns, how] => (at(ns), What::Left { how: how.to_owned() }),
            ["lost", ns, how] => (at(ns), What::Lost { how: how.to_owned() }),
            ["not", ns, how, ref text @ ..] => {
                (at(ns), What::Not { how: how.to_owned(), text: text.join(" ") })
            }
            ["late", ns, since] => (at(ns), What::Late { since: at(since) }),
            ["abort", ns, below] => (at(ns), What::Abort { below: below.parse().unwrap() }),
            ["uses", when, fds, tasks, threads] => {
                let when = serde_json::from_str(&json(when)).unwrap();
                let number = |text: &str| text.parse().unwrap();
                let (fds, tasks, threads) = (number(fds), number(tasks), number(threads));
                (at("0"), What::Uses { when, fds, tasks, threads })
            }
            _ => panic!("no line: {text}"),
        };
        Line { process, hold, at, what }
    }
}
