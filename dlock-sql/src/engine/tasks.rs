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
pub(crate) struct Napper {
    /// A blocking thread that sleeps, or waits for a free thread to do so.
    sleeper: Option<JoinHandle<()>>,
}

impl Napper {
    pub(crate) async fn nap(&mut self, duration: Duration) {
        if duration >= TIMER_STEP {
            return tokio::time::sleep(duration).await;
        }
        // At most one: if all blocking threads of the runtime are busy, more would pile up.
        let sleeper = match self.sleeper.take() {
            Some(sleeper) if !sleeper.is_finished() => sleeper,
            _ => tokio::task::spawn_blocking(move || std::thread::sleep(duration)),
        };
        select! {
            // It fails only if the runtime shuts down.
            _ = self.sleeper.insert(sleeper) => {}
            () = tokio::time::sleep(TIMER_STEP) => {}
        }
    }
}
