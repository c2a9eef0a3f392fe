//! Atomics. Those of one byte, which are states, can be torn on purpose.
//!
//! The orderings are ignored: every access is sequentially consistent, here and in shuttle.

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Mutant, is_active};

#[derive(Debug, Default)]
pub(crate) struct AtomicU8(shuttle::sync::atomic::AtomicU8);

impl AtomicU8 {
    pub(crate) const fn new(value: u8) -> Self {
        Self(shuttle::sync::atomic::AtomicU8::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u8 {
        self.0.load(order)
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        self.fetch_update(success, failure, |now| (now == current).then_some(new))
    }

    pub(crate) fn fetch_and(&self, bits: u8, order: Ordering) -> u8 {
        let and = self.fetch_update(order, Ordering::SeqCst, |now| Some(now & bits));
        and.unwrap_or_else(|now| now)
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        mut change: impl FnMut(u8) -> Option<u8>,
    ) -> Result<u8, u8> {
        if is_active(Mutant::TornState) {
            // The mistake: another task may write between the two.
            let now = self.0.load(Ordering::SeqCst);
            let Some(new) = change(now) else { return Err(now) };
            self.0.store(new, Ordering::SeqCst);
            return Ok(now);
        }
        let _ = (set, fetch);
        let mut now = self.0.load(Ordering::SeqCst);
        loop {
            let Some(new) = change(now) else { return Err(now) };
            let seen = self.0.compare_exchange(now, new, Ordering::SeqCst, Ordering::SeqCst);
            match seen {
                Ok(before) => return Ok(before),
                Err(other) => now = other,
            }
        }
    }
}
