//! The stock of the shop. It does not protect itself: a sale reads how many pieces are left, waits
//! for the payment, and writes one less. It checks fencing tokens, as a table would in its `WHERE`.

use std::collections::BTreeMap;

use dlock::{FencingToken, fencing::Fence};
use tokio::sync::{Mutex, watch};

use crate::refusal::Refusal;

#[derive(Debug)]
pub(crate) struct Stock {
    shelves: Mutex<BTreeMap<u32, Shelf>>,
    pub(crate) payments: Payments,
}

#[derive(Debug)]
struct Shelf {
    left: u32,
    /// Next to the data, and checked under the same mutex.
    fence: Fence,
}

impl Stock {
    /// Returns a stock with this number of pieces of each item.
    pub(crate) fn new(items: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let shelf = |(item, left)| (item, Shelf { left, fence: Fence::new() });
        let shelves = Mutex::new(items.into_iter().map(shelf).collect());
        Self { shelves, payments: Payments::new() }
    }

    /// Returns the number of pieces that are left.
    pub(crate) async fn left(&self, item: u32) -> Result<u32, Refusal> {
        let shelves = self.shelves.lock().await;
        shelves.get(&item).map(|shelf| shelf.left).ok_or(Refusal::NoSuchItem)
    }

    /// Sells one piece under the lock that has this token, and returns how many are left.
    pub(crate) async fn sell(&self, item: u32, token: FencingToken) -> Result<u32, Refusal> {
        let left = self.left(item).await?.checked_sub(1).ok_or(Refusal::SoldOut)?;
        self.payments.pay().await;
        let mut shelves = self.shelves.lock().await;
        let shelf = shelves.get_mut(&item).ok_or(Refusal::NoSuchItem)?;
        shelf.fence.admit(token)?;
        shelf.left = left;
        Ok(left)
    }
}

/// A payment provider that the example can stall.
#[derive(Debug)]
pub(crate) struct Payments {
    stalled: watch::Sender<bool>,
    /// The number of payments that wait for the provider.
    running: watch::Sender<usize>,
}

impl Payments {
    fn new() -> Self {
        Self { stalled: watch::Sender::new(false), running: watch::Sender::new(0) }
    }

    pub(crate) fn stall(&self) {
        self.stalled.send_replace(true);
    }

    pub(crate) fn resume(&self) {
        self.stalled.send_replace(false);
    }

    /// Waits until exactly this many payments run.
    pub(crate) async fn until_running(&self, number: usize) {
        let _ = self.running.subscribe().wait_for(|running| *running == number).await;
    }

    async fn pay(&self) {
        let _running = Running::new(&self.running);
        // Another request may run here, as it may during every real payment.
        tokio::task::yield_now().await;
        let _ = self.stalled.subscribe().wait_for(|stalled| !*stalled).await;
    }
}

/// Counts a payment until it ends or is dropped.
struct Running<'a>(&'a watch::Sender<usize>);

impl<'a> Running<'a> {
    fn new(running: &'a watch::Sender<usize>) -> Self {
        running.send_modify(|running| *running += 1);
        Self(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}
