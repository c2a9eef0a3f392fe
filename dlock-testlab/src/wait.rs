//! Waiting for what a server does in its own time.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::Stop;

/// A backstop on a busy machine, never a measure of speed.
const BOUND: Duration = Duration::from_secs(90);

/// The pause between two looks is as long as the look took, within these: one that starts a
/// program would otherwise keep a processor busy.
const POLL: Duration = Duration::from_millis(15);
const LONGEST_POLL: Duration = Duration::from_millis(250);

/// How long one look may take; it may be at a server that is paused, and then never ends.
const LOOK: Duration = Duration::from_secs(5);

/// How long a server may take to answer before it counts as one that is paused.
const SOON: Duration = Duration::from_millis(500);

/// Asks again and again until it is so. What it last was stands in the error.
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

/// The answer of a server that may be paused.
pub(crate) async fn soon<T>(answer: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    match timeout(SOON, answer).await {
        Ok(result) => result,
        Err(_) => Err(Stop::failed(format!("no answer within {SOON:?}"))),
    }
}
