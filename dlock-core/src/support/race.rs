//! Attempts that run beside each other, such as those at the addresses of a server.

use std::{ops::ControlFlow, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::sync::time::timeout;

/// Starts attempts one after another, and returns the first success. The next attempt starts when one
/// has failed, and otherwise `pause` after the one before (as in RFC 8305). So an address that does
/// not answer costs one pause, and an address that refuses costs none.
///
/// `judge` gets the error that was kept so far, and the next error. `Continue` keeps an error, and the
/// other attempts continue. `Break` ends the race, because the other attempts would fail alike. If all
/// attempts fail, the result is the error that was kept.
///
/// Returns `None` if there are no attempts. There is no limit on the time: attempts have their own.
///
/// # Cancel safety
/// If the future is dropped, the running attempts are dropped, as they are when one of them succeeds.
pub async fn race<T, E, F>(
    attempts: impl IntoIterator<Item = F>,
    pause: Duration,
    mut judge: impl FnMut(Option<E>, E) -> ControlFlow<E, E>,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = attempts.into_iter().peekable();
    let (mut running, mut kept) = (FuturesUnordered::new(), None);
    loop {
        running.extend(waiting.next());
        let ended = match waiting.peek() {
            Some(_) => timeout(pause, running.next()).await.ok().flatten(),
            None => running.next().await,
        };
        match ended {
            Some(Ok(success)) => return Some(Ok(success)),
            Some(Err(error)) => match judge(kept.take(), error) {
                ControlFlow::Continue(error) => kept = Some(error),
                ControlFlow::Break(error) => return Some(Err(error)),
            },
            // The pause has ended.
            None if waiting.peek().is_some() => {}
            None => return kept.map(Err),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::{BoxFuture, FutureExt};
    use tokio::{
        sync::watch,
        time::{Instant, sleep},
    };

    use super::*;

    const PAUSE: Duration = Duration::from_millis(250);

    type Racer = BoxFuture<'static, Result<u8, &'static str>>;

    fn works(number: u8) -> Racer {
        ready(Ok(number)).boxed()
    }

    fn fails(error: &'static str) -> Racer {
        ready(Err(error)).boxed()
    }

    fn hangs() -> Racer {
        pending().boxed()
    }

    fn slow(number: u8) -> Racer {
        let work = async move {
            sleep(PAUSE * 3).await;
            Ok(number)
        };
        work.boxed()
    }

    /// Keeps the first error. The error `final` ends the race.
    fn judge(
        kept: Option<&'static str>,
        error: &'static str,
    ) -> ControlFlow<&'static str, &'static str> {
        match error {
            "final" => ControlFlow::Break(error),
            _ => ControlFlow::Continue(kept.unwrap_or(error)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_attempt_costs_one_pause_and_a_failure_none() {
        for (attempts, result, pauses) in [
            (vec![works(1), works(2)], Ok(1), 0),
            (vec![hangs(), works(2)], Ok(2), 1),
            (vec![hangs(), hangs(), works(3)], Ok(3), 2),
            (vec![fails("a"), works(2)], Ok(2), 0),
            (vec![hangs(), fails("a"), works(3)], Ok(3), 1),
            (vec![slow(1), hangs()], Ok(1), 3),
            (vec![slow(1), slow(2)], Ok(1), 3),
            (vec![slow(1), fails("a")], Ok(1), 3),
            (vec![fails("a"), fails("b")], Err("a"), 0),
            (vec![fails("a"), fails("final"), works(3)], Err("final"), 0),
            (vec![hangs(), fails("final"), works(3)], Err("final"), 1),
        ] {
            let began = Instant::now();
            assert_eq!(race(attempts, PAUSE, judge).await, Some(result));
            let waited = began.elapsed();
            assert!(waited >= PAUSE * pauses && waited < PAUSE * (pauses + 1), "{waited:?}");
        }
        assert_eq!(race(Vec::<Racer>::new(), PAUSE, judge).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_dropped_with_the_race_and_after_a_success() {
        let (counted, receiver) = watch::channel(());
        let attempts = || {
            [hangs(), hangs(), slow(3)].map(|attempt| {
                let held = receiver.clone();
                attempt.inspect(move |_| drop(held)).boxed()
            })
        };
        assert_eq!(race(attempts(), PAUSE, judge).await, Some(Ok(3)));
        assert_eq!(counted.receiver_count(), 1);
        let mut dropped = Box::pin(race(attempts(), PAUSE, judge));
        assert!(tokio::time::timeout(PAUSE, &mut dropped).await.is_err());
        assert_eq!(counted.receiver_count(), 4);
        drop(dropped);
        assert_eq!(counted.receiver_count(), 1);
    }
}
