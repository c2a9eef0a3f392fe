//! tokio's channel for one value, with scheduling points on the sender's side.

pub(crate) use tokio::sync::oneshot::Receiver;

use super::{Plant, planted, point};

#[derive(Debug)]
pub(crate) struct Sender<T>(Option<tokio::sync::oneshot::Sender<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    (Sender(Some(sender)), receiver)
}

impl<T> Sender<T> {
    pub(crate) fn send(mut self, value: T) -> Result<(), T> {
        point();
        match self.0.take() {
            Some(sender) => sender.send(value),
            None => Err(value),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if planted(Plant::LostWake) {
            std::mem::forget(self.0.take());
        }
    }
}
