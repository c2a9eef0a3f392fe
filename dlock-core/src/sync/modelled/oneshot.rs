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
    pub(crate) fn is_closed(&self) -> bool {
        point();
        self.0.as_ref().is_none_or(tokio::sync::oneshot::Sender::is_closed)
    }

    pub(crate) fn send(mut self, value: T) -> Result<(), T> {
        point();
        let Some(sender) = self.0.take() else { return Err(value) };
        match sender.send(value) {
            Err(value) if planted(Plant::LostTurn) => {
                std::mem::forget(value);
                Ok(())
            }
            sent => sent,
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
