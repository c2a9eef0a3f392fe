//! Drops a future at each of its await points, or polls it late.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

/// The number of polls that [`late`] delays.
const LATE_POLLS: u32 = 3;

/// The time without progress after which a future counts as waiting for another task.
const STILL: Duration = Duration::from_millis(60);

/// How a future ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended<T> {
    /// It was dropped at the requested await point.
    Dropped,
    /// It was dropped while it waited for another task; more polls would not help.
    Waiting,
    /// It completed before that.
    Completed(T),
}

/// Polls `future` up to `polls` times, then drops it.
pub async fn drop_after<F: Future>(polls: usize, future: F) -> Ended<F::Output> {
    let (future, still) = (pin!(future), pin!(sleep(STILL)));
    Counted { future, still, left: polls }.await
}

/// Polls `future` once at once, and the next times each after this pause, as a busy runtime does.
/// Meanwhile the answer to a request may arrive, and the future does not see it.
pub(crate) async fn late<F: Future>(pause: Duration, future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..LATE_POLLS {
        let once = |cx: &mut Context<'_>| Poll::Ready(future.as_mut().poll(cx));
        if let Poll::Ready(output) = std::future::poll_fn(once).await {
            return output;
        }
        sleep(pause).await;
    }
    future.await
}

struct Counted<'a, F> {
    future: Pin<&'a mut F>,
    still: Pin<&'a mut Sleep>,
    left: usize,
}

impl<F: Future> Future for Counted<'_, F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(Ended::Dropped);
        }
        if self.still.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ended::Waiting);
        }
        self.left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ended::Completed(value)),
            Poll::Pending if self.left == 0 => Poll::Ready(Ended::Dropped),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn late_polls_miss_an_answer_that_has_arrived() {
        let began = tokio::time::Instant::now();
        let pause = Duration::from_secs(1);
        let answer = late(pause, sleep(Duration::from_millis(1)));
        answer.await;
        assert_eq!(began.elapsed(), pause);
        late(pause, std::future::ready(())).await;
        assert_eq!(began.elapsed(), pause);
    }

    #[tokio::test]
    async fn each_await_point_is_reached() {
        let two_awaits = || async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        };
        for polls in 0..3 {
            assert!(matches!(drop_after(polls, two_awaits()).await, Ended::Dropped), "{polls}");
        }
        assert!(matches!(drop_after(3, two_awaits()).await, Ended::Completed(())));
        assert!(matches!(drop_after(9, std::future::pending::<()>()).await, Ended::Waiting));
    }
}
