//! Who held the lock when, put together from what all processes say.

use std::{fmt, time::Duration};

use crate::{Failure, clock, stats};

/// One hold: `TOKEN:GOT:LEFT`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Which process; the parent knows.
    pub(super) process: usize,
    /// The fencing token, by which holds follow each other.
    pub(super) token: u64,
    /// When the wait returned.
    pub(super) got: u64,
    /// When the release was called.
    pub(super) left: u64,
}

impl Hold {
    /// What a process wrote.
    pub(super) fn parse(process: usize, text: &str) -> Result<Self, Failure> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [token, got, left] => {
                Ok(Self { process, token: token.parse()?, got: got.parse()?, left: left.parse()? })
            }
            _ => Err(format!("not a hold: {text}").into()),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.token, self.got, self.left)
    }
}

/// All holds of a run, in the order of their tokens.
#[derive(Debug)]
pub(super) struct Holds {
    holds: Vec<Hold>,
    processes: usize,
}

impl Holds {
    /// Puts them in order.
    ///
    /// # Errors
    /// When two held it at one time: then nothing else of the run means anything.
    pub(super) fn new(mut holds: Vec<Hold>, processes: usize) -> Result<Self, Failure> {
        holds.sort_unstable_by_key(|hold| hold.token);
        let overlap = holds.windows(2).find(|pair| pair[1].got < pair[0].left);
        match overlap {
            Some(pair) => Err(format!("two held the lock at one time: {pair:?}").into()),
            None => Ok(Self { holds, processes }),
        }
    }

    /// How many times one left it to another.
    pub(super) fn hand_overs(&self) -> f64 {
        u32::try_from(self.holds.len().saturating_sub(1)).map_or(f64::NAN, f64::from)
    }

    /// From the call of each release to the return of the next one's wait.
    pub(super) fn latencies(&self) -> Vec<Duration> {
        let pairs = self.holds.windows(2);
        pairs.map(|pair| clock::between(pair[0].left, pair[1].got)).collect()
    }

    /// How even the processes' shares are.
    pub(super) fn fairness(&self) -> f64 {
        let mut shares = vec![0; self.processes];
        for hold in &self.holds {
            shares[hold.process] += 1;
        }
        stats::fairness(&shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(texts: &[&str]) -> Result<Holds, Failure> {
        let holds = texts.iter().enumerate().map(|(process, text)| Hold::parse(process, text));
        Holds::new(holds.collect::<Result<_, _>>().unwrap(), texts.len())
    }

    #[test]
    fn tokens_say_who_came_next() {
        let holds = holds(&["9:70:80", "7:10:20", "8:25:30"]).unwrap();
        assert_eq!(holds.latencies(), [Duration::from_nanos(5), Duration::from_nanos(40)]);
        assert_eq!(holds.hand_overs(), 2.0);
        assert_eq!(holds.fairness(), 1.0);
    }

    #[test]
    fn two_holders_at_one_time_are_an_error() {
        assert!(holds(&["1:10:20", "2:19:30"]).is_err());
    }

    #[test]
    fn a_hold_reads_as_it_is_written() {
        let hold = Hold { process: 3, token: 1, got: 2, left: 3 };
        let read = Hold::parse(3, &hold.to_string()).unwrap();
        assert_eq!((read.process, read.token, read.got, read.left), (3, 1, 2, 3));
        assert!(Hold::parse(0, "1:2").is_err());
    }
}
