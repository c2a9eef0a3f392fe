//! The cost of each operation on the wire, counted between a client and a private server, is the one
//! in `docs/src/costs.md`.
//!
//! Counts must be equal, so an operation that became cheaper fails too, until the page says so. Bytes
//! must not be more than the page says, because tokens and times vary in length.

mod stores;

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use dlock::admin::Mode;
use dlock_testlab::{Proxy, Stop, Verdict};

use self::stores::{Client, claim};

/// The traffic on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The number of times that a client waited for the server. For SQLite, transactions that
    /// wrote.
    pub(crate) round_trips: u64,
    /// Requests that have an answer each; 0 where that can't be seen.
    pub(crate) requests: u64,
    /// Unrequested messages; 0 where that can't be seen.
    pub(crate) messages: u64,
    /// The bytes in both directions; for SQLite, those that were written.
    pub(crate) bytes: u64,
}

impl Cost {
    /// Returns the traffic through a proxy so far.
    pub(crate) fn of(proxy: &Proxy) -> Self {
        Self {
            round_trips: proxy.round_trips(),
            requests: proxy.answers(),
            messages: proxy.pushes(),
            bytes: proxy.request_bytes() + proxy.reply_bytes(),
        }
    }

    /// Returns the difference to an earlier reading.
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

/// The costs of all runs of each operation.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, Vec<Cost>>);

impl Tally {
    /// Takes it down.
    fn note(&mut self, operation: impl Into<String>, cost: Cost) {
        self.0.entry(operation.into()).or_default().push(cost);
    }

    /// Returns the smallest cost that each operation had more than once, with the smallest number
    /// of bytes of these runs. Periodic requests of a client sometimes add to a run, and late ones
    /// are sometimes missing.
    pub(crate) fn usual(&self) -> BTreeMap<String, Cost> {
        let usual = |costs: &[Cost]| {
            let times = |cost: &Cost| costs.iter().filter(|c| c.counts() == cost.counts()).count();
            let least = |cost: &&Cost| (cost.counts(), cost.bytes);
            costs.iter().filter(|cost| times(cost) > 1).min_by_key(least).copied()
        };
        let all = self.0.iter();
        all.filter_map(|(operation, costs)| Some((operation.clone(), usual(costs)?))).collect()
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

const TEXT: &str = include_str!("../../../../docs/src/costs.md");

/// The operations that are not counted for a store.
const NOT_COUNTED: &str = "-";

/// Compares the table below this heading with the counts.
pub(crate) fn compare(heading: &str, counted: &BTreeMap<String, Cost>) -> Verdict {
    let written = table(TEXT, heading);
    let mut wrong = String::new();
    for (operation, cost) in counted {
        let is_as_written = written.get(operation).is_some_and(|cells| fits(*cost, cells));
        if !is_as_written {
            let Cost { round_trips, requests, messages, bytes } = cost;
            // Writing to a string does not fail.
            let _ = writeln!(
                wrong,
                "| {operation} | {round_trips} | {requests} | {messages} | {bytes} |"
            );
        }
    }
    for operation in written.keys().filter(|operation| !counted.contains_key(*operation)) {
        let _ = writeln!(wrong, "| {operation} | was not counted |");
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            Err(Stop::failed(format!("docs/src/costs.md, {heading}: it is otherwise for\n{wrong}")))
        }
    }
}

/// Returns the cells of each operation below a heading.
fn table<'a>(text: &'a str, heading: &str) -> BTreeMap<String, Vec<&'a str>> {
    let below = text.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading));
    let section = below.skip(1).take_while(|line| !line.starts_with("## "));
    let rows = section.filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim));
    cells.filter_map(|mut cells| Some((cells.next()?.to_owned(), cells.collect()))).collect()
}

/// Returns whether the counts are equal, and the bytes not larger.
fn fits(cost: Cost, cells: &[&str]) -> bool {
    let is = |cell: &str, count: u64| cell == NOT_COUNTED || cell.parse() == Ok(count);
    match cells {
        [round_trips, requests, messages, bytes] => {
            is(round_trips, cost.round_trips)
                && is(requests, cost.requests)
                && is(messages, cost.messages)
                && bytes.parse::<u64>().is_ok_and(|most| cost.bytes <= most)
        }
        _ => false,
    }
}

#[test]
fn a_row_is_read_and_compared() {
    let text = "## A\n| x |\n|---|\n| take | 9 | 9 | 9 | 9 |\n\n## B\n\n| operation | ... |\n|---|---|\n\
        | take | 1 | - | 0 | 300 |\n\nMore.\n## C\n| x |\n|---|\n| give | 1 | 1 | 1 | 1 |\n";
    let table = table(text, "B");
    assert_eq!(table.len(), 1);
    let cost = Cost { round_trips: 1, requests: 7, messages: 0, bytes: 300 };
    assert!(fits(cost, &table["take"]));
    assert!(!fits(Cost { round_trips: 2, ..cost }, &table["take"]));
    assert!(!fits(Cost { messages: 1, ..cost }, &table["take"]));
    assert!(!fits(Cost { bytes: 301, ..cost }, &table["take"]));
}

/// Two clients have settled if they have no traffic during this number of pauses of this length.
const PAUSE: Duration = Duration::from_millis(40);
const UNCHANGED: u32 = 3;
/// The maximum number of pauses. A client that polls never settles.
const LOOKS: u32 = 50;
/// The number of waiters in the rows with many.
const MANY: usize = 32;

/// Does everything once.
pub(crate) async fn all(one: &Client, other: &Client, tally: &mut Tally) -> Verdict {
    // Shared locks leave keys behind for a while, so each has its own name.
    alone(one, Mode::Exclusive, "costs/lock", ["acquire", "release"], tally).await?;
    let rows = ["acquire a read lock", "release a read lock"];
    alone(one, Mode::Shared, "costs/lock to read", rows, tally).await?;
    several(one, tally).await?;
    for count in [1, 100] {
        renewal(one, count, tally).await?;
    }
    for waiters in [1, MANY] {
        queue(one, other, waiters, tally).await?;
    }
    Ok(())
}

/// An uncontended lock whose name the store knows already.
async fn alone(
    one: &Client,
    mode: Mode,
    name: &str,
    rows: [&str; 2],
    tally: &mut Tally,
) -> Verdict {
    let before = claim(name, mode)?;
    one.take(&before).await?;
    one.free(&before).await?;
    let claim = claim(name, mode)?;
    tally.note(rows[0], one.cost_of(one.take(&claim)).await?);
    tally.note(rows[1], one.cost_of(one.free(&claim)).await?);
    Ok(())
}

/// Several names together.
async fn several(one: &Client, tally: &mut Tally) -> Verdict {
    let names: Vec<_> = (0..8).map(|name| format!("costs/several/{name}")).collect();
    let lock = one.locks.multi(names.iter().map(String::as_str))?;
    // As in the other rows, the store knows the names.
    lock.lock().await?.release().await?;
    let mut guard = None;
    let take = async {
        guard = Some(lock.lock().await?);
        Ok(())
    };
    tally.note("acquire 8 together", one.cost_of(take).await?);
    let Some(guard) = guard else { return Ok(()) };
    let free = async {
        guard.release().await?;
        Ok(())
    };
    tally.note("release 8", one.cost_of(free).await?);
    Ok(())
}

/// This number of held locks.
async fn renewal(one: &Client, count: usize, tally: &mut Tally) -> Verdict {
    let (mut held, mut renewals) = (Vec::new(), Vec::new());
    for name in 0..count {
        let request = claim(&format!("costs/held/{name}"), Mode::Exclusive)?;
        renewals.push(one.hold(&request).await?);
        held.push(request);
    }
    tally.note(format!("renew {count}"), one.cost_of(one.renew(&renewals)).await?);
    for request in &held {
        one.free(request).await?;
    }
    Ok(())
}

/// Waits until the store knows the waiters, and until the background work of earlier operations is
/// done. Returns the costs of the clients until then.
async fn settled(one: &Client, other: &Client) -> Result<(Cost, Cost), Stop> {
    let spent = || Ok::<_, Stop>((one.spent_now()?, other.spent_now()?));
    let (mut before, mut unchanged) = (spent()?, 0);
    for _ in 0..LOOKS {
        tokio::time::sleep(PAUSE).await;
        let now = spent()?;
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
        if unchanged == UNCHANGED {
            break;
        }
    }
    Ok(before)
}

/// A lock with this number of waiters, in its second hand-off: a holder that has waited itself is
/// not an uncontended one.
async fn queue(one: &Client, other: &Client, waiters: usize, tally: &mut Tally) -> Verdict {
    let name = format!("costs/queue/{waiters}");
    let (first, holder) = (claim(&name, Mode::Exclusive)?, claim(&name, Mode::Exclusive)?);
    other.take(&first).await?;
    let joined = one.cost_of(one.queue(&holder)).await?;
    if one.is_notified() && waiters == 1 {
        tally.note("join the queue", joined);
    }
    let mut queue = Vec::new();
    for _ in 0..waiters {
        let waiter = claim(&name, Mode::Exclusive)?;
        other.queue(&waiter).await?;
        queue.push(waiter);
    }
    let (granted, freed) = tokio::join!(one.granted(&holder), other.free(&first));
    freed?;
    granted?;

    let backend = one.locks.backend();
    let look = async {
        backend.inspect(&holder.name).await?;
        Ok(())
    };
    tally.note(format!("inspect, {waiters} waiting"), one.cost_of(look).await?);

    let passes = async {
        let before = settled(one, other).await?;
        one.free(&holder).await?;
        Ok::<_, Stop>(before)
    };
    let (granted, passed) = tokio::join!(other.granted(&queue[0]), passes);
    let before = passed?;
    granted?;
    // The background work of a release was done before the other client was notified.
    let after = (one.spent().await?, other.spent_now()?);
    tally.note(format!("release, {waiters} waiting"), after.0.since(before.0));
    if other.is_notified() {
        tally.note(format!("be granted, {waiters} waiting"), after.1.since(before.1));
    }
    for waiter in queue.iter().rev() {
        other.free(waiter).await?;
    }
    Ok(())
}
