//! The start of this crate's tasks, and their short sleeps.

use std::time::Duration;

use tokio::{runtime::Handle, select, task::JoinHandle};

/// tokio's timer counts whole milliseconds.
const TIMER_STEP: Duration = Duration::from_millis(2);

/// Starts a task of a backend. The task ends when the backend is dropped. Only
/// [`Engine::start`](super::Engine::start) calls this, so every task is accounted for.
pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    // No task joins it: it ends when its queue is closed.
    drop(runtime.spawn(task));
}

/// Sleeps with a precision of a tenth of a millisecond.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    /// A blocking thread that sleeps, or waits for a free thread to do so.
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub(crate) async fn sleep(&mut self, duration: Duration) {
        if duration >= TIMER_STEP || cfg!(dlock_sim) {
            return tokio::time::sleep(duration).await;
        }
        // At most one: if all blocking threads of the runtime are busy, more would pile up.
        let thread = match self.thread.take() {
            Some(thread) if !thread.is_finished() => thread,
            _ => tokio::task::spawn_blocking(move || std::thread::sleep(duration)),
        };
        select! {
            // It fails only if the runtime shuts down.
            _ = self.thread.insert(thread) => {}
            () = tokio::time::sleep(TIMER_STEP) => {}
        }
    }
}
