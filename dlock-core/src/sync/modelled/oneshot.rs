//! tokio's channel for one value. Only the end of the sender is used.

pub(crate) use tokio::sync::oneshot::Receiver;

use super::{Mutant, is_active};

#[derive(Debug)]
pub(crate) struct Sender<T>(Option<tokio::sync::oneshot::Sender<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    (Sender(Some(sender)), receiver)
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if is_active(Mutant::LostWake) {
            std::mem::forget(self.0.take());
        }
    }
}
