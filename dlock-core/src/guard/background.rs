//! A release that its caller waits for, or not.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    Error, Released,
    engine::hold::{Hold, Releasing},
};

/// A release that goes on in the background when its caller goes away.
pub(super) struct Background {
    pub(super) hold: Arc<Hold>,
    pub(super) release: Option<Releasing>,
}

impl Future for Background {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(release) = &mut self.release else { return Poll::Pending };
        let result = std::task::ready!(release.as_mut().poll(cx));
        self.release = None;
        Poll::Ready(result)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            self.hold.engine.tasks.run(async move {
                if let Err(error) = release.await {
                    tracing::warn!(target: "dlock", %error, "a release that nobody waited for has failed");
                }
            });
        }
    }
}
