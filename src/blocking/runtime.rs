//! The background thread, and waits for its work.

use std::{
    fmt, io,
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use dlock_core::{ConfigIssue, Error, Locks};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::coop,
};

/// The longest time that the thread, at its end, waits for background releases.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// Locks whose runtime is in a background thread, which ends when this value is dropped. The value
/// does not own the runtime, since tokio panics if a runtime is dropped in async code.
pub(super) struct Background {
    pub(super) locks: Locks,
    handle: Handle,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
}

impl Background {
    /// Starts the thread and creates the locks in it.
    pub(super) fn start<F>(connect: F) -> Result<Self, Error>
    where
        F: Future<Output = Result<Locks, Error>> + Send + 'static,
    {
        outside_async_code()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let (end, ended) = oneshot::channel();
        let run = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(sender.send(Err(refused(error)))),
            };
            let handle = runtime.handle().clone();
            runtime.block_on(async {
                let locks = match connect.await {
                    Ok(locks) => locks,
                    Err(error) => return drop(sender.send(Err(error))),
                };
                drop(sender.send(Ok((locks.clone(), handle))));
                let Err(_gone) = ended.await else { return };
                if let Err(error) = locks.shutdown(LAST_WAIT).await {
                    // The leases free the remaining locks.
                    drop(error);
                }
            });
        };
        thread::Builder::new().name("dlock".to_owned()).spawn(run).map_err(refused)?;
        let (locks, handle) = receiver.recv().map_err(|gone| refused(io::Error::other(gone)))??;
        Ok(Self { locks, handle, _end: end })
    }

    /// Waits for `work` on the calling thread, while the background thread does the I/O.
    pub(super) fn block_on<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        outside_async_code()?;
        // Timers of `work` belong to the runtime of the background thread. `Handle::block_on` would
        // panic in async code that is not recognized.
        let _entered = self.handle.enter();
        let mut work = pin!(work);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        loop {
            match work.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return Ok(output),
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Calls [`block_on`](Self::block_on) for work that can fail.
    pub(super) fn wait_for<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.block_on(work)?
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}

/// Wakes a thread that waits in [`Background::block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Checks that a blocking call stalls no runtime.
pub(super) fn outside_async_code() -> Result<(), Error> {
    if !in_async_code() {
        return Ok(());
    }
    Err(Error::config(
        ConfigIssue::Runtime,
        "this is async code of a tokio runtime, which a blocking call would stall: use \
         dlock::connect and await, or call it in tokio::task::spawn_blocking",
    ))
}

/// Returns whether a tokio runtime is polling a future on this thread.
///
/// `Handle::try_current` succeeds in `spawn_blocking` too, where a thread may block. But only async
/// code has a budget of steps before it should yield: it is limited there, and unlimited in
/// `spawn_blocking` and `block_in_place`.
fn in_async_code() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    // When it is dropped, it restores the budget.
    let Poll::Ready(_restore) = coop::poll_proceed(&mut cx) else { return true };
    // The budget is a `u8`.
    (0..=u8::MAX).any(|_| match coop::poll_proceed(&mut cx) {
        Poll::Ready(step) => {
            step.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

fn refused(error: io::Error) -> Error {
    Error::config(
        ConfigIssue::Runtime,
        "the thread that renews the locks can't be started: check the limits of this process",
    )
    .with_source(error)
}
