//! Bytes that a proxy delays: each is forwarded as long after its arrival as a long cable would do.

use std::{collections::VecDeque, io, thread, time::Duration};

use tokio::{task::spawn_blocking, time::Instant};

/// The times for which a millisecond is much.
const SHORT: Duration = Duration::from_millis(20);

/// The number of pieces from which on no more are read.
const FULL: usize = 1024;

/// Bytes on their way, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Line(VecDeque<(Instant, Vec<u8>)>);

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= FULL
    }

    /// Appends bytes, which are due after this delay, and not before earlier ones.
    pub(super) fn push(&mut self, bytes: &[u8], delay: Duration) {
        self.0.push_back((Instant::now() + delay, bytes.to_owned()));
    }

    /// Returns the first bytes when they are due; never if there are none. Nothing is lost if the
    /// future is dropped.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
        let Some((due, _)) = self.0.front() else { return std::future::pending().await };
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            sleep(left).await?;
        }
        Ok(self.0.pop_front().map(|(_, bytes)| bytes).unwrap_or_default())
    }
}

/// Waits for this time. The timers of the runtime round up to milliseconds, which is much for a short
/// time; those of the system don't.
async fn sleep(time: Duration) -> io::Result<()> {
    if time < SHORT {
        spawn_blocking(move || thread::sleep(time)).await?;
    } else {
        tokio::time::sleep(time).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_come_in_order_and_not_before_they_are_due() {
        let mut line = Line::default();
        let start = Instant::now();
        line.push(b"a", Duration::from_micros(300));
        line.push(b"b", Duration::ZERO);
        assert_eq!(line.next().await.unwrap(), b"a");
        assert!(start.elapsed() >= Duration::from_micros(300));
        assert_eq!(line.next().await.unwrap(), b"b");
        assert!(line.is_empty());
    }

    #[tokio::test]
    async fn a_dropped_wait_loses_nothing() {
        let mut line = Line::default();
        line.push(b"a", Duration::from_millis(20));
        tokio::select! {
            biased;
            _ = line.next() => unreachable!("it is not due"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(line.next().await.unwrap(), b"a");
    }
}
