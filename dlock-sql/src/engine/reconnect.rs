//! The pauses before a reconnect.
//!
//! A server that accepts no writes, or no more clients, is already overloaded or failing, and each
//! new connection costs it a process or a thread. So the pause doubles until a statement has
//! succeeded. A successful connect is not enough.

use std::time::Duration;

use dlock_core::{Backoff, Certainty, Clock, Error, Instant};

use super::fault::{Fault, Remedy};

/// The first pause, which follows one retry without a pause, and the longest.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// The longest wait of a call here. Its caller may need the error in time.
const STEP: Duration = Duration::from_millis(100);

/// The recent failures of one connection.
#[derive(Debug)]
pub(crate) struct ReconnectPauses {
    /// Since the first failure.
    backoff: Option<Backoff>,
    until: Instant,
    last: Option<(Error, Remedy)>,
}

impl ReconnectPauses {
    pub(crate) const fn new() -> Self {
        Self { backoff: None, until: Instant::from_nanos(0), last: None }
    }

    /// Records that a statement has succeeded.
    pub(crate) fn worked(&mut self) {
        (self.backoff, self.last) = (None, None);
    }

    /// Records that a connect failed, or that the connection can't be used any more.
    pub(crate) fn failed(&mut self, fault: Fault) -> Fault {
        let pause = self.backoff.as_mut().map_or(Duration::ZERO, Backoff::pause);
        self.backoff.get_or_insert(Backoff::between(SHORTEST, LONGEST));
        self.until = Clock::Boot.now().saturating_add(pause);
        self.last = Some((fault.error.clone(), fault.remedy));
        fault
    }

    /// Waits until another connection may be made.
    ///
    /// # Errors
    /// The last error, if the remaining wait is longer than that. This attempt applied nothing.
    pub(crate) async fn pause(&self) -> Result<(), Fault> {
        let left = self.until.since(Clock::Boot.now());
        let Some(fault) = self.last_failure().filter(|_| !left.is_zero()) else { return Ok(()) };
        tokio::time::sleep(left.min(STEP)).await;
        if left <= STEP { Ok(()) } else { Err(fault) }
    }

    /// Returns the last failure, as that of an attempt that applied nothing.
    fn last_failure(&self) -> Option<Fault> {
        let (error, remedy) = self.last.as_ref()?;
        // No row caused it, since nothing was sent. Perhaps a connect would succeed.
        let remedy = match remedy {
            Remedy::Apart | Remedy::Unclear => Remedy::Retry,
            remedy => *remedy,
        };
        Some(Fault { error: error.clone().with_certainty(Certainty::NotApplied), remedy })
    }

    /// Opens a dedicated connection, unless that failed a moment ago and the pause lasts. Then, or
    /// if it fails, takes another one: of the application's pool, or of another task.
    ///
    /// # Errors
    /// The reasons of both.
    pub(crate) async fn own_or_other<T>(
        &mut self,
        own: impl Future<Output = Result<T, Fault>>,
        other: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let is_paused = self.until > Clock::Boot.now();
        let refused = match self.last_failure().filter(|_| is_paused) {
            Some(fault) => fault,
            None => match own.await {
                Ok(conn) => {
                    self.worked();
                    return Ok(conn);
                }
                Err(fault) => self.failed(fault),
            },
        };
        other.await.map_err(|other| {
            let text = format!("{}; {}", refused.error, other.error);
            Fault::passing(text).with_remedy(Remedy::Connect)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use dlock_core::ErrorKind;

    use super::*;

    fn fault() -> Fault {
        Fault { error: Error::new(ErrorKind::Unavailable, "read-only"), remedy: Remedy::Retry }
    }

    #[test]
    fn pauses_double_up_to_a_bound_until_something_works() {
        let mut pauses = ReconnectPauses::new();
        let mut next = || {
            pauses.failed(fault());
            pauses.until.since(Clock::Boot.now())
        };
        assert_eq!(next(), Duration::ZERO);
        let made: Vec<_> = (0..12).map(|_| next()).collect();
        assert!(made[0] <= SHORTEST, "{made:?}");
        assert!(made.iter().all(|pause| *pause <= LONGEST), "{made:?}");
        assert!(made[11] >= LONGEST / 3, "{made:?}");
        pauses.worked();
        pauses.failed(fault());
        assert!(pauses.until <= Clock::Boot.now());
    }

    #[tokio::test]
    async fn the_pool_serves_while_no_own_connection_can_be_opened() {
        let mut pauses = ReconnectPauses::new();
        // The first retry follows at once, and then the pool serves without another attempt.
        let mut attempts = 0;
        while pauses.until <= Clock::Boot.now() {
            let own = async {
                attempts += 1;
                Err(fault())
            };
            assert_eq!(pauses.own_or_other(own, ready(Ok("pooled"))).await.unwrap(), "pooled");
        }
        assert!(attempts > 1, "{attempts}");
        // A pause that outlasts the test.
        pauses.until = Clock::Boot.now().saturating_add(Duration::from_secs(3600));
        let conn = pauses.own_or_other(ready(Ok("own")), ready(Ok("pooled"))).await;
        assert_eq!(conn.unwrap(), "pooled", "the pause lasts");
        let full = ready(Err(Fault::passing("pool is full")));
        let neither = pauses.own_or_other(ready(Ok("own")), full).await.unwrap_err();
        let text = neither.error.to_string();
        assert!(text.contains("read-only") && text.contains("pool is full"), "{text}");
        assert_eq!(neither.remedy, Remedy::Connect);
        pauses.until = Clock::Boot.now();
        let conn = pauses.own_or_other(ready(Ok("own")), ready(Ok("pooled"))).await;
        assert_eq!(conn.unwrap(), "own");
        assert!(pauses.last.is_none());
    }

    #[tokio::test]
    async fn a_long_pause_returns_the_last_error() {
        let mut pauses = ReconnectPauses::new();
        assert!(pauses.pause().await.is_ok());
        (0..12).for_each(|_| drop(pauses.failed(fault())));
        let fault = pauses.pause().await.unwrap_err();
        assert_eq!(fault.error.certainty(), Certainty::NotApplied);
        while pauses.pause().await.is_err() {}
        pauses.worked();
        assert!(pauses.pause().await.is_ok());
    }
}
