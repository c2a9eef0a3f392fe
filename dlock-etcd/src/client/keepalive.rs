//! Renewals of leases, on one stream.
//!
//! A member answers them in the order of their arrival, and an answer names no request but the
//! lease. So one is sent after the other: whatever happens to a renewal, the next answer belongs to
//! the next one, or to a new stream.

use std::sync::Arc;

use dlock_core::Certainty::{NotApplied, Unknown};
use futures_util::stream;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tonic::Streaming;

use super::{
    calls::{Calls, Token, with_header},
    failure::{
        Failure,
        FailureKind::{Disconnected, LeaseNotFound, Token as StaleToken},
    },
    messages::{Header, LeaseKeepAliveRequest, LeaseTtlResponse},
};

/// The stream of renewals. It is opened by the first renewal, and after it broke by the next one.
#[derive(Debug, Default)]
pub(super) struct Keepalives {
    open: tokio::sync::Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    /// The number of the token of the stream.
    token: u64,
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseTtlResponse>,
}

impl Keepalives {
    /// Renews a lease and returns its time to live.
    pub(super) async fn keep_alive(
        &self,
        calls: &Arc<Calls>,
        lease: i64,
        deadline: Instant,
    ) -> Result<(Header, i64), Failure> {
        let renewal = async {
            let mut open = self.open.lock().await;
            let token = calls.token();
            // Out of its place until it has answered: a renewal that is dropped takes the stream
            // with it. One with an old token is not used again, since it may be refused.
            // If it fails, the server may have ended it long ago.
            if let Some(stream) = open.take().filter(|stream| stream.token == token.number)
                && let Ok(answer) = stream.renew(lease, &mut open).await
            {
                return Ok(answer);
            }
            match Open::begin(calls, token.clone(), lease, &mut open).await {
                Err(failure) if failure.kind() == StaleToken => {
                    calls.log_in(token.number, deadline).await?;
                    Open::begin(calls, calls.token(), lease, &mut open).await
                }
                answer => answer,
            }
        };
        let answer = timeout_at(deadline, renewal).await.map_err(|_| Failure::late())??;
        match with_header(answer) {
            (header, LeaseTtlResponse { ttl: ttl @ 1.., .. }) => Ok((header, ttl)),
            _ => Err(Failure::new(LeaseNotFound, NotApplied, "the lease does not exist any more")),
        }
    }
}

impl Open {
    /// Opens a stream with a renewal as its first message.
    async fn begin(
        calls: &Arc<Calls>,
        token: Token,
        lease: i64,
        place: &mut Option<Self>,
    ) -> Result<LeaseTtlResponse, Failure> {
        let number = token.number;
        let (requests, mut queue) = mpsc::channel(1);
        let request = requests.try_send(LeaseKeepAliveRequest { id: lease });
        request.map_err(|_| ended())?;
        let queue = stream::poll_fn(move |context| queue.poll_recv(context));
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let answers = Arc::clone(calls).stream(path, token, queue).await?;
        Self { token: number, requests, answers }.answer(place).await
    }

    async fn renew(
        self,
        lease: i64,
        place: &mut Option<Self>,
    ) -> Result<LeaseTtlResponse, Failure> {
        let request = self.requests.try_send(LeaseKeepAliveRequest { id: lease });
        request.map_err(|_| ended())?;
        self.answer(place).await
    }

    /// Waits for the answer and puts the stream back in its place.
    async fn answer(mut self, place: &mut Option<Self>) -> Result<LeaseTtlResponse, Failure> {
        let answer = self.answers.message().await?.ok_or_else(ended)?;
        *place = Some(self);
        Ok(answer)
    }
}

fn ended() -> Failure {
    Failure::new(Disconnected, Unknown, "the server has ended the stream of renewals")
}
