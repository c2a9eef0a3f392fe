//! The driver's task, and the events of its watches.
//!
//! The driver panics in the caller that waits for the event of a watch if its task is dropped
//! meanwhile, which happens when the runtime ends. So the driver's task is started here, and events
//! are awaited here: no event is polled during or after the end of the task.
//!
//! # Concurrency
//!
//! `Alive` is a flag under a lock. The task unsets it before it drops the driver; a poll of an event
//! reads it, and keeps the lock for reading until it returns. The driver's end wakes the callers,
//! which then find the flag unset.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::RwLock;
use spawns_core::{Spawn, Task};
use tokio::runtime::Handle;
use zookeeper_client::{OneshotWatcher, WatchedEvent};

/// Whether the driver's task exists.
#[derive(Clone)]
pub(crate) struct Alive(Arc<RwLock<bool>>);

impl Alive {
    /// Opens a client, whose task runs on this runtime.
    pub(crate) async fn open<T>(runtime: Handle, opening: impl Future<Output = T>) -> (T, Self) {
        let alive = Self(Arc::new(RwLock::new(true)));
        let spawner = Spawner { runtime, alive: alive.clone() };
        let mut opening = pin!(opening);
        let opened = poll_fn(|cx| {
            let _scope = spawns_core::enter(&spawner);
            opening.as_mut().poll(cx)
        });
        (opened.await, alive)
    }

    /// Waits for the event of a watch. `None` if the driver has ended.
    pub(crate) async fn event(self, watcher: OneshotWatcher) -> Option<WatchedEvent> {
        let mut changed = pin!(watcher.changed());
        poll_fn(|cx| {
            let is_alive = self.0.read();
            if !*is_alive {
                return Poll::Ready(None);
            }
            changed.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

/// Starts the tasks of the driver.
struct Spawner {
    runtime: Handle,
    alive: Alive,
}

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        let work = Some(Box::into_pin(task.future));
        self.runtime.spawn(DriverTask { work, alive: self.alive.clone() });
    }
}

struct DriverTask {
    work: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    alive: Alive,
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.work {
            Some(work) => work.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        *self.alive.0.write() = false;
        self.work = None;
    }
}
