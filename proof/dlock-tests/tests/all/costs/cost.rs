//! The counted requests, round trips and bytes of an operation.

use std::collections::BTreeMap;

use dlock_testlab::Proxy;

/// What went over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// How often a client waited for the server; of SQLite, transactions that wrote.
    pub(crate) round_trips: u64,
    /// Requests that have an answer each; 0 where that can't be seen.
    pub(crate) requests: u64,
    /// Messages that nobody asked for; 0 where that can't be seen.
    pub(crate) messages: u64,
    /// In both directions; of SQLite, those that were written.
    pub(crate) bytes: u64,
}

impl Cost {
    /// What has gone through a proxy up to now.
    pub(crate) fn of(proxy: &Proxy) -> Self {
        Self {
            round_trips: proxy.round_trips(),
            requests: proxy.answers(),
            messages: proxy.pushes(),
            bytes: proxy.request_bytes() + proxy.reply_bytes(),
        }
    }

    /// What has been added since.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            round_trips: self.round_trips.saturating_sub(before.round_trips),
            requests: self.requests.saturating_sub(before.requests),
            messages: self.messages.saturating_sub(before.messages),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }

    fn counts(self) -> [u64; 3] {
        [self.round_trips, self.requests, self.messages]
    }
}

/// What each operation has cost, each time.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, Vec<Cost>>);

impl Tally {
    /// Takes it down.
    pub(crate) fn note(&mut self, operation: impl Into<String>, cost: Cost) {
        self.0.entry(operation.into()).or_default().push(cost);
    }

    /// The least that each costs more than once, with the least bytes of those times: what a client
    /// does from time to time gets between now and then, and what is late is missed.
    pub(crate) fn usual(self) -> BTreeMap<String, Cost> {
        let usual = |costs: Vec<Cost>| {
            let times = |cost: &Cost| costs.iter().filter(|c| c.counts() == cost.counts()).count();
            let least = |cost: &&Cost| (cost.counts(), cost.bytes);
            costs.iter().filter(|cost| times(cost) > 1).min_by_key(least).copied()
        };
        let all = self.0.into_iter();
        all.filter_map(|(operation, costs)| Some((operation, usual(costs)?))).collect()
    }
}

#[test]
fn the_usual_cost_is_the_least_that_is_seen_twice() {
    let cost = |round_trips, bytes| Cost { round_trips, bytes, ..Cost::default() };
    let mut tally = Tally::default();
    for seen in [cost(2, 10), cost(1, 31), cost(0, 5), cost(2, 9), cost(2, 8), cost(1, 30)] {
        tally.note("take", seen);
    }
    assert_eq!(tally.usual()["take"], cost(1, 30));
}
