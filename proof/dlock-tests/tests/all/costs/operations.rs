//! The operations that are counted, the same over each store.

use std::time::Duration;

use dlock::admin::Mode;
use dlock_testlab::{Stop, Verdict};

use super::{
    client::{Client, claim},
    cost::Tally,
};

/// Who waits has made himself known by then.
const WAITS: Duration = Duration::from_millis(100);
/// How many are many.
const MANY: usize = 32;

/// Does everything once.
pub(crate) async fn all(one: &Client, other: &Client, tally: &mut Tally) -> Verdict {
    alone(one, Mode::Exclusive, ["take", "give back"], tally).await?;
    alone(one, Mode::Shared, ["take to read", "give back from reading"], tally).await?;
    several(one, tally).await?;
    for count in [1, 100] {
        renewal(one, count, tally).await?;
    }
    for waiters in [1, MANY] {
        queue(one, other, waiters, tally).await?;
    }
    Ok(())
}

/// A lock that nobody else wants, and that the store knows by its name.
async fn alone(one: &Client, mode: Mode, rows: [&str; 2], tally: &mut Tally) -> Verdict {
    // Shared locks leave something behind for a while, so each has a name of its own.
    let name = format!("costs/{}", rows[0]);
    let before = claim(&name, mode)?;
    one.take(&before).await?;
    one.free(&before).await?;
    let claim = claim(&name, mode)?;
    tally.note(rows[0], one.cost_of(one.take(&claim)).await?);
    tally.note(rows[1], one.cost_of(one.free(&claim)).await?);
    Ok(())
}

/// Several names together.
async fn several(one: &Client, tally: &mut Tally) -> Verdict {
    let names: Vec<_> = (0..8).map(|name| format!("costs/several/{name}")).collect();
    let lock = one.locks.multi(names.iter().map(String::as_str))?;
    // As in the others, the store knows the names.
    lock.lock().await?.release().await?;
    let mut guard = None;
    let take = async {
        guard = Some(lock.lock().await?);
        Ok(())
    };
    tally.note("take 8 together", one.cost_of(take).await?);
    let Some(guard) = guard else { return Ok(()) };
    let free = async {
        guard.release().await?;
        Ok(())
    };
    tally.note("give back 8", one.cost_of(free).await?);
    Ok(())
}

/// So many that are held.
async fn renewal(one: &Client, count: usize, tally: &mut Tally) -> Verdict {
    let mut held = Vec::new();
    for name in 0..count {
        let request = claim(&format!("costs/held/{name}"), Mode::Exclusive)?;
        one.take(&request).await?;
        held.push(request);
    }
    tally.note(format!("renew {count}"), one.cost_of(one.renew(&held)).await?);
    for request in &held {
        one.free(request).await?;
    }
    Ok(())
}

/// A lock that so many wait for, and that is passed on for the second time: who has waited for it
/// itself is no quiet holder.
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
        tokio::time::sleep(WAITS).await;
        let before = (one.spent_now()?, other.spent_now()?);
        one.free(&holder).await?;
        Ok::<_, Stop>(before)
    };
    let (granted, passed) = tokio::join!(other.granted(&queue[0]), passes);
    let before = passed?;
    granted?;
    // What a release has left to do was done when the other was told.
    let after = (one.spent().await?, other.spent_now()?);
    tally.note(format!("give back, {waiters} waiting"), after.0.since(before.0));
    if other.is_notified() {
        tally.note(format!("be granted, {waiters} waiting"), after.1.since(before.1));
    }
    for waiter in queue.iter().rev() {
        other.free(waiter).await?;
    }
    Ok(())
}
