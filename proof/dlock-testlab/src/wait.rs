//! Waits for changes on a server that take effect later.

use std::time::Duration;

use dlock_testkit::support::tell;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::Stop;

/// A backstop on a busy machine, never a measure of speed.
const BOUND: Duration = Duration::from_secs(90);

/// The bounds of the pause between two checks. Within them, the pause is as long as the check took:
/// a check that starts a program would otherwise keep a processor busy.
const POLL: Duration = Duration::from_millis(15);
const LONGEST_POLL: Duration = Duration::from_millis(250);

/// The longest time for one check. A check of a paused server never ends.
const LOOK: Duration = Duration::from_secs(5);

/// The longest time for an answer before a server counts as paused.
const SOON: Duration = Duration::from_secs(1);

/// Repeats the check until it succeeds. The error contains the result of the last check.
pub(crate) async fn until<T, F>(what: &str, mut check: impl FnMut() -> F) -> Result<T, Stop>
where
    F: Future<Output = Result<T, Stop>>,
{
    let mut last = String::from("no answer");
    let polling = async {
        loop {
            let start = Instant::now();
            match timeout(LOOK, check()).await {
                Ok(Ok(value)) => return value,
                Ok(Err(stop)) => last = stop.into_text(),
                Err(_) => last = String::from("a look hangs"),
            }
            sleep(start.elapsed().clamp(POLL, LONGEST_POLL)).await;
        }
    };
    match timeout(BOUND, polling).await {
        Ok(value) => Ok(value),
        Err(_) => Err(Stop::failed(format!("{what}: not within {BOUND:?}: {last}"))),
    }
}

/// Repeats a request until the server grants it, and prints why it did not.
pub(crate) async fn insist<T, F>(what: &str, mut request: impl FnMut() -> F) -> Result<T, Stop>
where
    F: Future<Output = Result<T, Stop>>,
{
    let refusals = Refusals::of(what);
    until(what, || {
        let (request, refusals) = (request(), &refusals);
        async move { request.await.inspect_err(|stop| refusals.print(stop.clone().into_text())) }
    })
    .await
}

/// The reasons why a server did not do what it was asked for, which is asked again. Each is printed,
/// unless it is that of the time before.
pub(crate) struct Refusals {
    what: String,
    last: Mutex<String>,
}

impl Refusals {
    pub(crate) fn of(what: &str) -> Self {
        Self { what: what.to_owned(), last: Mutex::default() }
    }

    pub(crate) fn print(&self, why: String) {
        let mut last = self.last.lock();
        if *last != why {
            tell(&format!("asked again: {}: {why}", self.what));
            *last = why;
        }
    }
}

/// Returns the answer of a server that may be paused.
pub(crate) async fn soon<T>(answer: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    match timeout(SOON, answer).await {
        Ok(result) => result,
        Err(_) => Err(Stop::failed(format!("no answer within {SOON:?}"))),
    }
}
