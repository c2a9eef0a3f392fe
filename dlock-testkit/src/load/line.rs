//! One line of what a process writes down.
//!
//! ```text
//! HOLD ask TASK PHASE MODE NS NAME   an attempt begins
//! HOLD got NS TOKEN UNTIL            it is believed to be held, until then unless it is renewed
//! HOLD keep UNTIL                    it is, until then
//! HOLD share NS                      a writer turns into a reader
//! HOLD let NS                        it is about to be let go
//! HOLD left NS WHAT                  and that was answered: released, gone, unknown
//! HOLD lost NS WHAT                  it is known to be lost: expired, revoked
//! HOLD not NS WHAT TEXT              the attempt came to nothing: busy, timeout, cancelled, or
//!                                    the kind of the error
//! ```
//!
//! Times are nanoseconds of the clock that all processes share.

use std::{fmt, str::FromStr};

use dlock_core::{FencingToken, Instant, Mode};

use crate::Stop;

/// One line: what happened to one acquisition of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its number within the process.
    pub(super) hold: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Ask { task: usize, phase: Phase, mode: Mode, at: Instant, name: String },
    Got { at: Instant, token: FencingToken, until: Instant },
    Keep { until: Instant },
    Share { at: Instant },
    Let { at: Instant },
    Left { at: Instant, how: String },
    Lost { at: Instant, how: String },
    Not { at: Instant, how: String, text: String },
}

/// What is to be expected meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Harm is done; everything may fail.
    Storm,
    /// The harm is over; everything may take its time to become well.
    Calm,
    /// All has to be well.
    Well,
    /// Nobody begins anything.
    End,
}

pub(super) const RELEASED: &str = "released";
pub(super) const GONE: &str = "gone";
pub(super) const UNKNOWN: &str = "unknown";
pub(super) const REVOKED: &str = "revoked";
pub(super) const EXPIRED: &str = "expired";
pub(super) const BUSY: &str = "busy";
pub(super) const CANCELLED: &str = "cancelled";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.hold)?;
        match &self.what {
            What::Ask { task, phase, mode, at, name } => {
                let mode = match mode {
                    Mode::Exclusive => "x".to_owned(),
                    Mode::Shared => "s".to_owned(),
                    mode => format!("{}/{}", mode.weight(), mode.capacity()),
                };
                write!(f, "ask {task} {phase} {mode} {} {name}", at.as_nanos())
            }
            What::Got { at, token, until } => {
                write!(f, "got {} {token} {}", at.as_nanos(), until.as_nanos())
            }
            What::Keep { until } => write!(f, "keep {}", until.as_nanos()),
            What::Share { at } => write!(f, "share {}", at.as_nanos()),
            What::Let { at } => write!(f, "let {}", at.as_nanos()),
            What::Left { at, how } => write!(f, "left {} {how}", at.as_nanos()),
            What::Lost { at, how } => write!(f, "lost {} {how}", at.as_nanos()),
            What::Not { at, how, text } => {
                write!(f, "not {} {how} {}", at.as_nanos(), text.replace('\n', " "))
            }
        }
    }
}

impl FromStr for Line {
    type Err = Stop;

    fn from_str(text: &str) -> Result<Self, Stop> {
        let bad = || Stop::failed(format!("not a line of a log: {text:?}"));
        let instant = |text: &str| -> Result<Instant, Stop> {
            Ok(Instant::from_nanos(text.parse().map_err(|_| bad())?))
        };
        let words: Vec<&str> = text.splitn(7, ' ').collect();
        let (hold, rest) = words.split_first().ok_or_else(bad)?;
        let what = match *rest {
            ["ask", task, phase, mode, at, name] => What::Ask {
                task: task.parse()?,
                phase: phase.parse()?,
                mode: mode_of(mode)?,
                at: instant(at)?,
                name: name.to_owned(),
            },
            ["got", at, token, until] => What::Got {
                at: instant(at)?,
                token: FencingToken::new(token.parse()?)?,
                until: instant(until)?,
            },
            ["keep", until] => What::Keep { until: instant(until)? },
            ["share", at] => What::Share { at: instant(at)? },
            ["let", at] => What::Let { at: instant(at)? },
            ["left", at, how] => What::Left { at: instant(at)?, how: how.to_owned() },
            ["lost", at, how] => What::Lost { at: instant(at)?, how: how.to_owned() },
            ["not", at, how, ref text @ ..] => {
                What::Not { at: instant(at)?, how: how.to_owned(), text: text.join(" ") }
            }
            _ => return Err(bad()),
        };
        Ok(Self { hold: hold.parse()?, what })
    }
}

fn mode_of(text: &str) -> Result<Mode, Stop> {
    Ok(match (text, text.split_once('/')) {
        ("x", _) => Mode::Exclusive,
        ("s", _) => Mode::Shared,
        (_, Some((n, of))) => Mode::permits(n.parse()?, of.parse()?)?,
        _ => return Err(Stop::failed(format!("no mode: {text}"))),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let at = Instant::from_nanos(17);
        let token = FencingToken::new(5).unwrap();
        let mode = Mode::permits(2, 3).unwrap();
        let (name, text) = ("a/b".to_owned(), "no answer in time (lock=a)".to_owned());
        let all = [
            What::Ask { task: 3, phase: Phase::Well, mode, at, name },
            What::Got { at, token, until: at },
            What::Keep { until: at },
            What::Share { at },
            What::Let { at },
            What::Left { at, how: GONE.to_owned() },
            What::Lost { at, how: REVOKED.to_owned() },
            What::Not { at, how: "Unavailable".to_owned(), text },
            What::Not { at, how: BUSY.to_owned(), text: String::new() },
        ];
        for what in all {
            let line = Line { hold: 9, what };
            let read: Line = line.to_string().trim_end().parse().unwrap();
            assert_eq!(read, line);
        }
    }

    #[test]
    fn what_can_not_be_read_is_an_error() {
        for text in ["", "1", "1 got 5", "x let 5", "1 let x", "1 ask 0 soon x 1 a"] {
            assert!(text.parse::<Line>().is_err(), "{text}");
        }
    }
}
