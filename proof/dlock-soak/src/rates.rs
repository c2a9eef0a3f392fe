//! The rates of a load.

use std::time::Duration;

use dlock_core::{Instant, Mode};

use super::Report;

impl Report {
    /// Returns the number of grants in each second from the beginning.
    pub fn grants_per_second(&self) -> Vec<u64> {
        let mut seconds = Vec::new();
        for (at, _) in self.all().filter_map(|acquisition| acquisition.got) {
            let second = usize::try_from(at.since(self.run.began).as_secs()).unwrap_or(usize::MAX);
            // Nothing was granted after the end.
            if second <= MOST {
                seconds.resize(seconds.len().max(second + 1), 0);
                seconds[second] += 1;
            }
        }
        seconds
    }

    /// Returns the duration of each hand-off and its time: from the start of a release to the next
    /// grant, if that claim already waited. Only names with one holder at a time are counted.
    pub fn hand_offs(&self) -> Vec<(Instant, Duration)> {
        let mut all = Vec::new();
        for acquisitions in self.by_name.values() {
            if acquisitions.iter().any(|acquisition| acquisition.mode != Mode::Exclusive) {
                continue;
            }
            let mut held: Vec<_> = acquisitions
                .iter()
                .filter_map(|acquisition| acquisition.got.map(|(at, _)| (at, acquisition)))
                .collect();
            held.sort_unstable_by_key(|(at, _)| *at);
            for pair in held.windows(2) {
                let ((_, before), (got, next)) = (pair[0], pair[1]);
                if let Some(begun) = before.release_began
                    && next.asked < begun
                    && begun <= got
                {
                    all.push((got, got.since(begun)));
                }
            }
        }
        all.sort_unstable();
        all
    }
}

/// A number of seconds larger than the length of any run.
const MOST: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{Record, Run},
        short,
    };

    #[test]
    fn grants_and_hand_offs_are_counted() {
        let second = 1_000_000_000_u64;
        let text = format!(
            "1 ask 0 storm x 0 a\n1 got 1 1 90\n1 let 50\n\
             2 ask 1 storm x 9 a\n2 got 57 2 90\n2 let 60\n\
             3 ask 2 storm x 70 a\n3 got 71 3 90\n3 let 80\n\
             4 ask 3 storm s 70 b\n4 got {} 4 {}\n",
            2 * second,
            3 * second
        );
        let at = Instant::from_nanos;
        let mut records: Vec<_> = short::lines(0, &text).into_iter().map(Record::Did).collect();
        records.push(Record::Run(Run {
            began: at(0),
            names: Vec::new(),
            longest_lease: Duration::ZERO,
            faults_noted: false,
            calm: at(0),
            well: at(0),
            ended: at(9 * second),
        }));
        let report = Report::of(records).unwrap();
        assert_eq!(report.grants_per_second(), [3, 0, 1]);
        assert_eq!(report.hand_offs(), [(at(57), Duration::from_nanos(7))]);
    }
}
