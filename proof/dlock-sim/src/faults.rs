//! The kinds of faults, and how often each of them took effect.

use std::{ops::Range, time::Duration};

use crate::random::Rng;

/// Microseconds: of the world's clock, or of a server's.
pub(crate) type Micros = u64;

pub(crate) fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

/// A kind of fault, as people read it. Stores have further kinds.
pub(crate) type Kind = &'static str;

pub(crate) const KILLED: Kind = "a process is killed";
pub(crate) const MACHINE_LOST: Kind = "a machine is lost";
pub(crate) const FROZEN: Kind = "a process is frozen";
pub(crate) const LEFT: Kind = "a process shuts down";
pub(crate) const CUT: Kind = "a link is cut";
pub(crate) const RESET: Kind = "connections break";
pub(crate) const RESTARTED: Kind = "the server restarts";
pub(crate) const EMPTIED: Kind = "the server loses its data";
pub(crate) const BUSY: Kind = "the server is busy";
pub(crate) const CLOCK_FORWARD: Kind = "the server's clock steps forward";
pub(crate) const CLOCK_BACK: Kind = "the server's clock steps back";
pub(crate) const CLOCK_RATE: Kind = "the server's clock changes its rate";
pub(crate) const CACHE_FORGOTTEN: Kind = "the server forgets its scripts";
pub(crate) const SLOW_MESSAGE: Kind = "a message is slow";
pub(crate) const MESSAGE_LOST: Kind = "a message is lost";
pub(crate) const MESSAGE_TWICE: Kind = "a message arrives twice";
pub(crate) const MESSAGE_LATE: Kind = "a message is very late";

/// The kinds that are injected at a time of their own, into any store.
pub(crate) const INJECTED: [Kind; 13] = [
    KILLED,
    MACHINE_LOST,
    FROZEN,
    LEFT,
    CUT,
    RESET,
    RESTARTED,
    EMPTIED,
    BUSY,
    CLOCK_FORWARD,
    CLOCK_BACK,
    CLOCK_RATE,
    CACHE_FORGOTTEN,
];

/// A fault of a plan. Each kind uses some of the fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Its number in the plan of its seed.
    pub(crate) number: usize,
    pub(crate) at: Micros,
    pub(crate) kind: Kind,
    /// Processes and hosts are counted from 0.
    pub(crate) process: usize,
    pub(crate) host: usize,
    /// How long it lasts, or how long nothing runs in the place of what has ended.
    pub(crate) time: Micros,
    /// The step of a clock in microseconds, or its rate in millionths above one.
    pub(crate) by: i64,
    /// A cut link lets nothing through to the servers, or to the process.
    pub(crate) cut: (bool, bool),
    /// The timers of a frozen process come first when it goes on.
    pub(crate) timers_first: bool,
}

impl Fault {
    /// Draws a fault of one of these kinds.
    pub(crate) fn draw(rng: &mut Rng, kinds: &[Kind], processes: usize, hosts: usize) -> Self {
        let mut one_of = |count: usize| usize::try_from(rng.below(count as u64)).unwrap_or(0);
        let (process, host) = (one_of(processes), one_of(hosts));
        let short = |rng: &mut Rng| {
            let longest = rng.pick(&[50_000, 500_000, 2_500_000]);
            rng.within(1_000..longest)
        };
        let step = |rng: &mut Rng| {
            let longest = rng.pick(&[10_000, 500_000, 5_000_000]);
            i64::try_from(rng.within(1_000..longest)).unwrap_or(1_000)
        };
        let (kind, time, by) = (rng.pick(kinds), 0, 0);
        let (cut, timers_first) = ((false, false), false);
        let none = Self { number: 0, at: 0, kind, process, host, time, by, cut, timers_first };
        match kind {
            LEFT | RESET | CACHE_FORGOTTEN => none,
            FROZEN => {
                let time = short(rng) * rng.pick(&[1, 1, 4]);
                Self { time, timers_first: rng.chance(500_000), ..none }
            }
            CUT => {
                let cut = rng.pick(&[(true, false), (false, true), (true, true)]);
                Self { cut, time: short(rng), ..none }
            }
            CLOCK_FORWARD => Self { by: step(rng), ..none },
            CLOCK_BACK => Self { by: -step(rng), ..none },
            CLOCK_RATE => Self { by: rate(rng), ..none },
            _ => Self { time: short(rng), ..none },
        }
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

/// How long pieces travel.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    pub(crate) usual: Range<Micros>,
    /// The chance of a slow piece, in a million, and how long it travels.
    pub(crate) slow: (u64, Range<Micros>),
}

/// What the network does to single messages, as chances in a million.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageFaults {
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    /// The chance of a very late message, and how late it is.
    pub(crate) late: (u64, Range<Micros>),
}

impl MessageFaults {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let latest = rng.pick(&[500_000, 1_000_000, 3_000_000]);
        Self {
            lost: rng.pick(&[0, 2_000, 10_000, 50_000]),
            twice: rng.pick(&[0, 10_000, 100_000]),
            late: (rng.pick(&[0, 2_000, 10_000, 50_000]), 100_000..latest),
        }
    }
}
