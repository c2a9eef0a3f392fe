//! The code of a worker process: the part that an application would write.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use dlock::{LockExt as _, Locks, Mutex};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    Failure, LOCK,
    crew::{Job, Line, Role},
    stock::Stock,
};

/// The time that a worker takes between reading and writing.
const THINKING: Duration = Duration::from_millis(2);

/// The number of buyers that a worker serves at a time.
const AT_ONCE: usize = 4;

/// Does the job and reports to the shop line by line.
pub(crate) async fn work(job: Job) -> Result<(), Failure> {
    let stock = Stock::at(job.stock.clone());
    if job.role == Role::Naive {
        return serve(job.buyers, || sell_without_lock(&stock)).await;
    }
    let locks = connect(&job).await?;
    let lock = locks.mutex(LOCK)?;
    match job.role {
        Role::Impatient => sell_impatiently(&lock, &stock).await?,
        _ => serve(job.buyers, || sell(&lock, &stock)).await?,
    }
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

async fn connect(job: &Job) -> Result<Locks, dlock::Error> {
    let locks = dlock::connect(&job.url).await?;
    match job.lease {
        Some(lease) => locks.with_options(locks.options().with_lease(lease)),
        None => Ok(locks),
    }
}

/// Act 1: between this read and this write, other workers read the same number.
async fn sell_without_lock(stock: &Stock) -> Result<Line, Failure> {
    let left = stock.read()?;
    if left == 0 {
        return Ok(Line::SoldOut);
    }
    tokio::time::sleep(THINKING).await;
    stock.write(left - 1)?;
    Ok(Line::Sold)
}

/// Act 2: the same under the lock. `with` releases it at the end and drops the work if the lock is
/// lost. The write carries the token, in case the loss has not been detected.
async fn sell(lock: &Mutex, stock: &Stock) -> Result<Line, Failure> {
    lock.with(|token| async move {
        let left = stock.read()?;
        if left == 0 {
            return Ok(Line::SoldOut);
        }
        tokio::time::sleep(THINKING).await;
        stock.write_fenced(left - 1, token)??;
        Ok(Line::Sold)
    })
    .await?
}

/// Act 3: waits for the payment while it holds the lock, and then writes without checking its
/// guard, neither by `check()` nor by `run()`. The shop stops the whole process in between.
async fn sell_impatiently(lock: &Mutex, stock: &Stock) -> Result<(), Failure> {
    let guard = lock.lock().await?;
    let left = stock.read()?;
    tell(&Line::Holding { token: guard.token(), left })?;
    nod().await?;
    tell(&match stock.write_fenced(left - 1, guard.token())? {
        Ok(()) => Line::Sold,
        Err(stale) => Line::Refused(stale.to_string()),
    })?;
    tell(&Line::Guard(match guard.check() {
        Ok(_) => "it is held".to_owned(),
        Err(lost) => lost.to_string(),
    }))?;
    guard.release().await?;
    Ok(())
}

/// Serves this worker's share of the buyers once the shop opens.
async fn serve<F>(buyers: u32, sell: impl Fn() -> F + Send + Sync) -> Result<(), Failure>
where
    F: Future<Output = Result<Line, Failure>> + Send,
{
    tell(&Line::Ready)?;
    nod().await?;
    stream::iter(0..buyers)
        .map(|_| sell())
        .buffer_unordered(AT_ONCE)
        .try_for_each(|line| async move { tell(&line) })
        .await
}

fn tell(line: &Line) -> Result<(), Failure> {
    let mut shop = io::stdout().lock();
    writeln!(shop, "{line}")?;
    Ok(shop.flush()?)
}

/// Waits until the shop tells the worker to continue.
async fn nod() -> Result<(), Failure> {
    let mut word = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut word).await?;
    if word.is_empty() { Err("the shop is gone".into()) } else { Ok(()) }
}
