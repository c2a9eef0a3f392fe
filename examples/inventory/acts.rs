//! The three acts, and the checks whether they ended as promised.

use std::{
    io::{self, IsTerminal as _, Write},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use dlock::{Locks, guarantees::OrphanRelease};
use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Failure, LOCK,
    args::Args,
    crew::{Job, Line, Role, Worker},
    stock::Stock,
};

/// The lease in act 3: short, because the act waits until it expires.
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// A lock that only act 3 takes, to see whether the store accepts writes.
#[cfg(unix)]
const PROBE: &str = "inventory/probe";

/// How often act 3 stops the worker at most.
#[cfg(unix)]
const STOPS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) args: Args,
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    pub(crate) locks: Locks,
}

/// The counts of answers to buyers.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sold: u32,
    sold_out: u32,
}

impl Shop {
    /// Plays all acts and prints the account of them.
    ///
    /// # Errors
    /// If a promise was broken.
    pub(crate) async fn open(&self, out: &mut (impl Write + Send)) -> Result<(), Failure> {
        let Args { workers, items, buyers, .. } = self.args;
        let start = Instant::now();
        writeln!(out, "{items} items, {buyers} buyers, {workers} worker processes")?;
        writeln!(out, "locks in {}", self.locks.backend().store())?;
        self.without_a_lock(out).await?;
        self.with_dlock(out).await?;
        self.with_a_stopped_holder(out).await?;
        promised(self.locks.inspect(LOCK).await?.is_free(), || {
            "the lock is still held or waited for at the end".to_owned()
        })?;
        writeln!(out, "\nAll as promised, in {}.", took(start))?;
        Ok(())
    }

    async fn without_a_lock(&self, out: &mut (impl Write + Send)) -> Result<(), Failure> {
        writeln!(out, "\n1. Without a lock")?;
        let start = Instant::now();
        let (stock, tally) = self.sell(Role::Naive).await?;
        let Tally { sold, sold_out } = tally;
        writeln!(out, "   {sold} buyers were told \"it is yours\", {sold_out} \"sold out\"")?;
        writeln!(out, "   and by the stock {} items are left", stock.read()?)?;
        let items = self.args.items;
        promised(sold > items, || "nothing was oversold without a lock: try more buyers".into())?;
        writeln!(out, "   => OVERSOLD by {} ({})", sold - items, took(start))?;
        Ok(())
    }

    async fn with_dlock(&self, out: &mut (impl Write + Send)) -> Result<(), Failure> {
        writeln!(out, "\n2. With dlock")?;
        let start = Instant::now();
        let (stock, tally) = self.sell(Role::Guarded).await?;
        let Tally { sold, sold_out } = tally;
        writeln!(out, "   {sold} buyers were told \"it is yours\", {sold_out} \"sold out\"")?;
        let Args { items, buyers, .. } = self.args;
        let left = stock.read()?;
        promised((sold, sold_out, left) == (items, buyers - items, 0), || {
            format!("sold {sold} of {items} items to {buyers} buyers, and {left} are left")
        })?;
        writeln!(out, "   => SOLD EXACTLY {items} ({})", took(start))?;
        Ok(())
    }

    /// Makes all workers serve their share of the buyers.
    async fn sell(&self, role: Role) -> Result<(Stock, Tally), Failure> {
        let Args { workers, items, buyers, .. } = self.args;
        let (job, stock) = self.job(role, items)?;
        let mut crew = (0..workers)
            .map(|n| {
                let share = buyers / workers + u32::from(n < buyers % workers);
                Worker::start(&Job { buyers: share, ..job.clone() })
            })
            .collect::<Result<Vec<_>, _>>()?;
        for worker in &mut crew {
            worker.ready().await?;
        }
        // All workers start at once, as when a sale opens.
        let progress = Progress::of(buyers);
        for worker in &mut crew {
            worker.nod().await?;
        }
        let tallies =
            try_join_all(crew.into_iter().map(|worker| listen(worker, &progress))).await?;
        let tally = tallies.into_iter().fold(Tally::default(), |sum, part| Tally {
            sold: sum.sold + part.sold,
            sold_out: sum.sold_out + part.sold_out,
        });
        Ok((stock, tally))
    }

    #[cfg(unix)]
    async fn with_a_stopped_holder(&self, out: &mut (impl Write + Send)) -> Result<(), Failure> {
        writeln!(out, "\n3. With a holder that is stopped past its lease, and one item left")?;
        let start = Instant::now();
        let (job, stock) = self.job(Role::Impatient, 1)?;
        let job = Job { lease: Some(SHORT_LEASE), ..job };

        let mut late = Worker::start(&job)?;
        let Some(Line::Holding { token, left }) = late.next().await? else {
            return Err(late.failed("it did not get the lock"));
        };
        self.stop(&late).await?;
        let stopped = Instant::now();
        writeln!(
            out,
            "   worker {} has the lock with token {token}, reads: {left} left;",
            late.pid
        )?;
        let end = match self.locks.guarantees().orphan_release {
            OrphanRelease::SessionEnd => "session".to_owned(),
            _ => format!("lease of {SHORT_LEASE:?}"),
        };
        writeln!(out, "   it is stopped (SIGSTOP), and its {end} runs out")?;

        let mut next = Worker::start(&Job { role: Role::Guarded, buyers: 1, ..job.clone() })?;
        next.ready().await?;
        next.nod().await?;
        let Some(Line::Sold) = next.next().await? else {
            return Err(next.failed("it did not sell the last item"));
        };
        writeln!(
            out,
            "   worker {} gets the lock {} later and sells the item",
            next.pid,
            took(stopped)
        )?;
        while next.next().await?.is_some() {}

        // The payment arrives while the worker is stopped, so that the write is its first action.
        late.nod().await?;
        late.resume()?;
        writeln!(
            out,
            "   worker {} goes on (SIGCONT) and, asking nobody, writes its sale",
            late.pid
        )?;
        let why = match late.next().await? {
            Some(Line::Refused(why)) => why,
            _ => return Err("a holder wrote after its lease had ended: sold twice".into()),
        };
        writeln!(out, "   the stock refuses:\n     {why}")?;
        if let Some(Line::Guard(what)) = late.next().await? {
            writeln!(out, "   its guard, had it been asked:\n     {what}")?;
        }
        while late.next().await?.is_some() {}
        promised(stock.read()? == 0, || "the last item is still there".to_owned())?;
        writeln!(out, "   => REFUSED the late write, sold once ({})", took(start))?;
        Ok(())
    }

    /// Stops the worker while it is not in a transaction. A worker that is stopped within one, such
    /// as a renewal, would block an SQLite file for everybody, since SQLite locks the whole file.
    #[cfg(unix)]
    async fn stop(&self, worker: &Worker) -> Result<(), Failure> {
        let probe = self.locks.mutex(PROBE)?;
        for _ in 0..STOPS {
            worker.stop().await?;
            if let Ok(taken) = timeout(SHORT_LEASE / 4, probe.try_lock()).await {
                if let Some(guard) = taken? {
                    guard.release().await?;
                }
                return Ok(());
            }
            worker.resume()?;
            // Time for the transaction to end.
            sleep(SHORT_LEASE / 20).await;
        }
        Err(worker.failed("each time it was stopped, its transaction blocked the store"))
    }

    #[cfg(not(unix))]
    async fn with_a_stopped_holder(&self, out: &mut (impl Write + Send)) -> Result<(), Failure> {
        writeln!(out, "\n3. Left out: this system can't stop a process by a signal")?;
        Ok(())
    }

    /// Returns a job with a new stock of `items` items.
    fn job(&self, role: Role, items: u32) -> Result<(Job, Stock), Failure> {
        let file = self.dir.join(format!("stock-{role:?}.txt"));
        let stock = Stock::at(file.clone());
        stock.write(items)?;
        Ok((Job { role, url: self.url.clone(), stock: file, buyers: 1, lease: None }, stock))
    }
}

/// Counts the lines of one worker until it ends.
async fn listen(mut worker: Worker, progress: &Progress) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    while let Some(line) = worker.next().await? {
        match line {
            Line::Sold => tally.sold += 1,
            Line::SoldOut => tally.sold_out += 1,
            other => return Err(worker.failed(&format!("it said {other:?}"))),
        }
        progress.step();
    }
    Ok(tally)
}

fn promised(kept: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if kept { Ok(()) } else { Err(otherwise().into()) }
}

fn took(since: Instant) -> String {
    format!("{:.2} s", since.elapsed().as_secs_f64())
}

/// The progress of an act: a bar for people, plain lines for logs. Both go to standard error, so
/// that standard output contains only the account.
#[derive(Debug)]
struct Progress {
    total: u32,
    done: AtomicU32,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn of(total: u32) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total.into());
            if let Ok(style) =
                ProgressStyle::with_template("   {bar:40} {pos} of {len} buyers served")
            {
                bar.set_style(style);
            }
            bar
        });
        Self { total, done: AtomicU32::new(0), bar }
    }

    /// Counts one served buyer.
    pub(crate) fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            // A log gets one line for every quarter.
            None if done.is_multiple_of((self.total / 4).max(1)) => {
                eprintln!("   {done} of {} buyers served", self.total);
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    /// Removes the bar: the account on standard output contains the result.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
