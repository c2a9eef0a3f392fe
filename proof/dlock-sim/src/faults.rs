//! The kinds of faults, and how often each of them took effect.

use std::{collections::BTreeMap, fmt};

use crate::random::Rng;

/// Microseconds: of the world's clock, or of a server's.
pub(crate) type Micros = u64;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Killed,
    MachineLost,
    Frozen,
    Left,
    Cut,
    Reset,
    Restarted,
    Emptied,
    Busy,
    ClockForward,
    ClockBack,
    ClockRate,
    CacheForgotten,
    SlowMessage,
    MessageLost,
    MessageTwice,
    MessageLate,
}

impl Kind {
    /// The kinds that concern single messages.
    pub(crate) const OF_MESSAGES: [Self; 4] =
        [Self::SlowMessage, Self::MessageLost, Self::MessageTwice, Self::MessageLate];

    /// The kinds that are injected at a time of their own.
    pub(crate) const INJECTED: [Self; 13] = [
        Self::Killed,
        Self::MachineLost,
        Self::Frozen,
        Self::Left,
        Self::Cut,
        Self::Reset,
        Self::Restarted,
        Self::Emptied,
        Self::Busy,
        Self::ClockForward,
        Self::ClockBack,
        Self::ClockRate,
        Self::CacheForgotten,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "a process is killed",
            Self::MachineLost => "a machine is lost",
            Self::Frozen => "a process is frozen",
            Self::Left => "a process shuts down",
            Self::Cut => "a link is cut",
            Self::Reset => "connections break",
            Self::Restarted => "the server restarts",
            Self::Emptied => "the server loses its data",
            Self::Busy => "the server is busy",
            Self::ClockForward => "the server's clock steps forward",
            Self::ClockBack => "the server's clock steps back",
            Self::ClockRate => "the server's clock changes its rate",
            Self::CacheForgotten => "the server forgets its scripts",
            Self::SlowMessage => "a message is slow",
            Self::MessageLost => "a message is lost",
            Self::MessageTwice => "a message arrives twice",
            Self::MessageLate => "a message is very late",
        })
    }
}

/// A fault of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Its number in the plan of its seed.
    pub(crate) number: usize,
    pub(crate) at: Micros,
    pub(crate) what: What,
}

/// What a fault does. Times are microseconds; processes are counted from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A process dies, with its machine or alone. Another one begins after this time.
    Kill {
        process: usize,
        with_machine: bool,
        pause: Micros,
    },
    Freeze {
        process: usize,
        time: Micros,
        timers_first: bool,
    },
    Leave {
        process: usize,
    },
    Cut {
        process: usize,
        up: bool,
        down: bool,
        time: Micros,
    },
    Reset {
        process: usize,
    },
    Restart {
        keeps_data: bool,
        down: Micros,
    },
    Busy {
        time: Micros,
    },
    Step {
        by: i64,
    },
    Rate {
        ppm: i64,
    },
    ForgetCache,
}

impl What {
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Kill { with_machine: false, .. } => Kind::Killed,
            Self::Kill { .. } => Kind::MachineLost,
            Self::Freeze { .. } => Kind::Frozen,
            Self::Leave { .. } => Kind::Left,
            Self::Cut { .. } => Kind::Cut,
            Self::Reset { .. } => Kind::Reset,
            Self::Restart { keeps_data: true, .. } => Kind::Restarted,
            Self::Restart { .. } => Kind::Emptied,
            Self::Busy { .. } => Kind::Busy,
            Self::Step { by } if by > 0 => Kind::ClockForward,
            Self::Step { .. } => Kind::ClockBack,
            Self::Rate { .. } => Kind::ClockRate,
            Self::ForgetCache => Kind::CacheForgotten,
        }
    }

    /// Draws a fault of one of these kinds.
    pub(crate) fn draw(rng: &mut Rng, kinds: &[Kind], processes: usize) -> Self {
        let process = usize::try_from(rng.below(processes as u64)).unwrap_or(0);
        let short = |rng: &mut Rng| {
            let longest = rng.pick(&[50_000, 500_000, 2_500_000]);
            rng.within(1_000..longest)
        };
        let step = |rng: &mut Rng| {
            let longest = rng.pick(&[10_000, 500_000, 5_000_000]);
            i64::try_from(rng.within(1_000..longest)).unwrap_or(1_000)
        };
        match rng.pick(kinds) {
            kind @ (Kind::Killed | Kind::MachineLost) => {
                let with_machine = kind == Kind::MachineLost;
                Self::Kill { process, with_machine, pause: short(rng) }
            }
            Kind::Frozen => {
                let time = short(rng) * rng.pick(&[1, 1, 4]);
                Self::Freeze { process, time, timers_first: rng.chance(500_000) }
            }
            Kind::Left => Self::Leave { process },
            Kind::Cut => {
                let (up, down) = rng.pick(&[(true, false), (false, true), (true, true)]);
                Self::Cut { process, up, down, time: short(rng) }
            }
            Kind::Reset => Self::Reset { process },
            Kind::Restarted => Self::Restart { keeps_data: true, down: short(rng) },
            Kind::Emptied => Self::Restart { keeps_data: false, down: short(rng) },
            Kind::Busy => Self::Busy { time: short(rng) },
            Kind::ClockForward => Self::Step { by: step(rng) },
            Kind::ClockBack => Self::Step { by: -step(rng) },
            Kind::ClockRate => Self::Rate { ppm: rate(rng) },
            // The others have no time of their own.
            _ => Self::ForgetCache,
        }
    }
}

/// How often each kind of fault took effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects(pub(crate) BTreeMap<Kind, u64>);

impl Effects {
    pub(crate) fn took(&mut self, kind: Kind) {
        *self.0.entry(kind).or_default() += 1;
    }
}

/// A rate of a clock: at most 0.4 % too fast or too slow, which the margin of a lease allows for.
pub(crate) fn rate(rng: &mut Rng) -> i64 {
    let size = i64::try_from(rng.below(4001)).unwrap_or(0);
    match rng.below(5) {
        0 => size,
        1 => -size,
        2 => 4000,
        3 => -4000,
        _ => 0,
    }
}
