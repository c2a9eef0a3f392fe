//! The holds of a lock, collected from the reports of all processes.

use std::time::Duration;

use crate::{Failure, clock, figures};

/// One hold: `CLIENT:TOKEN:GOT:LEFT`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The index of the process, which only the parent knows.
    pub(crate) process: usize,
    /// The index of the client in its process.
    pub(crate) client: usize,
    /// The fencing token, which orders the holds.
    pub(crate) token: u64,
    /// The time when the wait returned.
    pub(crate) got: u64,
    /// The time when the release was called.
    pub(crate) left: u64,
}

impl Hold {
    /// Parses the report of a process.
    pub(crate) fn parse(process: usize, text: &str) -> Result<Self, Failure> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [client, token, got, left] => Ok(Self {
                process,
                client: client.parse()?,
                token: token.parse()?,
                got: got.parse()?,
                left: left.parse()?,
            }),
            _ => Err(format!("not a hold: {text}").into()),
        }
    }
}

/// All holds of a run, in the order of their tokens.
#[derive(Debug)]
pub(crate) struct Holds {
    holds: Vec<Hold>,
    processes: usize,
    /// The number of clients in each process.
    clients: usize,
}

impl Holds {
    /// Sorts the holds.
    ///
    /// # Errors
    /// If two holds overlap: then no result of the run is meaningful.
    pub(crate) fn new(
        mut holds: Vec<Hold>,
        processes: usize,
        clients: usize,
    ) -> Result<Self, Failure> {
        holds.sort_unstable_by_key(|hold| hold.token);
        let overlap = holds.windows(2).find(|pair| pair[1].got < pair[0].left);
        match overlap {
            Some(pair) => Err(format!("two held the lock at one time: {pair:?}").into()),
            None => Ok(Self { holds, processes, clients }),
        }
    }

    /// Returns the number of hand-offs.
    pub(crate) fn hand_offs(&self) -> f64 {
        u32::try_from(self.holds.len().saturating_sub(1)).map_or(f64::NAN, f64::from)
    }

    /// Returns the time from the first hold to the last one.
    pub(crate) fn took(&self) -> Duration {
        match &self.holds[..] {
            [first, .., last] => clock::between(first.got, last.got),
            _ => Duration::ZERO,
        }
    }

    /// Returns the times from each release to the return of the next wait of another client. A lock
    /// that is not fair often stays with the same client.
    pub(crate) fn crossings(&self) -> Vec<Duration> {
        let pairs = self.holds.windows(2);
        let crossed = pairs
            .filter(|pair| (pair[0].process, pair[0].client) != (pair[1].process, pair[1].client));
        crossed.map(|pair| clock::between(pair[0].left, pair[1].got)).collect()
    }

    /// Returns how even the clients' shares are; `None` if there were too few holds for several
    /// turns of each client.
    pub(crate) fn evenness(&self, turns: usize) -> Option<f64> {
        let all = self.processes * self.clients;
        let shares = self.shares(all, |hold| hold.process * self.clients + hold.client);
        (self.holds.len() >= turns * all).then(|| figures::fairness(&shares))
    }

    fn shares(&self, of: usize, place: impl Fn(&Hold) -> usize) -> Vec<u32> {
        let mut shares = vec![0; of];
        for hold in &self.holds {
            if let Some(share) = shares.get_mut(place(hold)) {
                *share += 1;
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(texts: &[&str]) -> Result<Holds, Failure> {
        let holds = texts.iter().enumerate().map(|(process, text)| Hold::parse(process, text));
        Holds::new(holds.collect::<Result<_, _>>().unwrap(), texts.len(), 2)
    }

    #[test]
    fn tokens_show_the_order_of_holders() {
        let holds = holds(&["0:9:70:80", "0:7:10:20", "0:8:25:30"]).unwrap();
        assert_eq!(holds.crossings(), [Duration::from_nanos(5), Duration::from_nanos(40)]);
        assert_eq!(holds.hand_offs(), 2.0);
        assert_eq!(holds.took(), Duration::from_nanos(60));
    }

    #[test]
    fn two_holders_at_one_time_are_an_error() {
        assert!(holds(&["0:1:10:20", "0:2:19:30"]).is_err());
    }

    #[test]
    fn a_client_without_a_share_makes_it_uneven() {
        let one = |client, token| Hold { process: 0, client, token, got: token, left: token };
        let even = Holds::new(vec![one(0, 1), one(1, 2)], 1, 2).unwrap();
        assert_eq!(even.evenness(1), Some(1.0));
        let odd = Holds::new(vec![one(0, 1), one(0, 2)], 1, 2).unwrap();
        assert_eq!(odd.evenness(1), Some(0.5));
    }

    #[test]
    fn a_hand_off_within_a_client_is_no_crossing() {
        let one = |process, token| Hold { process, client: 0, token, got: token, left: token };
        let holds = Holds::new(vec![one(0, 10), one(0, 11), one(1, 20)], 2, 1).unwrap();
        assert_eq!(holds.crossings(), [Duration::from_nanos(9)]);
        assert!(holds.evenness(1).is_some_and(|even| even < 1.0));
        assert_eq!(holds.evenness(2), None);
    }

    #[test]
    fn a_hold_is_read() {
        let read = Hold::parse(3, "4:1:2:5").unwrap();
        assert_eq!((read.process, read.client), (3, 4));
        assert_eq!((read.token, read.got, read.left), (1, 2, 5));
        assert!(Hold::parse(0, "1:2").is_err());
    }
}
