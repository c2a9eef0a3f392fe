//! Unary calls and streams, with the login.
//!
//! A token is sent with each request, and a stream keeps the token that it was opened with. A
//! member refuses a token that has not been used for five minutes, one that another member does not
//! know after a restart, and one that is older than the last change of users or roles. Such a
//! refusal comes before the request is executed, so the client logs in again and sends the request
//! once more. Tokens are numbered, so that many refused calls lead to one login.

use std::{
    marker::PhantomData,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use dlock_core::Certainty::NotApplied;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codec::BufferSettings,
    codegen::http::{Uri, uri::PathAndQuery},
    metadata::{Ascii, MetadataValue},
};
use tonic_prost::{ProstDecoder, ProstEncoder};

use super::{
    connection::Sender,
    failure::{
        Failure,
        FailureKind::{AuthDisabled, FewStreams, Protocol, Token as StaleToken, WrongUser},
    },
    messages::{AuthenticateRequest, Header, Response, Unary},
};

/// The largest answer to accept. tonic's own limit of 4 MiB is less than a request may bring.
const LARGEST: usize = 256 << 20;

/// The initial size of the buffer of a message. tonic's own is 8 KiB, which each key that is kept
/// from an answer would hold.
const BUFFER: usize = 512;

/// A token of a login, with its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Token {
    pub(super) number: u64,
    /// `None` if etcd needs no login.
    text: Option<MetadataValue<Ascii>>,
}

/// The calls of a connection.
pub(super) struct Calls {
    sender: Sender,
    origin: Uri,
    login: Option<(String, String)>,
    token: Mutex<Token>,
    /// Held during a login.
    turn: tokio::sync::Mutex<()>,
    /// The number of unary requests under way, without those that go first.
    under_way: AtomicUsize,
    answered: Notify,
}

/// The streams that are kept free of most unary requests: those of watches and renewals, and one for
/// a vote.
const KEPT: usize = 4;

/// The number of streams without which heartbeats may get none: one for watches and one for renewals,
/// which stay open, one for a vote, and one for another request.
const LEAST: usize = 4;

/// A unary request that is under way.
struct UnderWay<'a>(&'a Calls);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.answered.notify_one();
    }
}

impl Calls {
    pub(super) fn new(sender: Sender, origin: Uri, login: Option<(String, String)>) -> Self {
        Self {
            sender,
            origin,
            login,
            token: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            under_way: AtomicUsize::new(0),
            answered: Notify::new(),
        }
    }

    pub(super) fn token(&self) -> Token {
        self.token.lock().clone()
    }

    /// Fails if the server allows fewer streams than a session needs. It has told the number with its
    /// first answer.
    pub(super) fn check_streams(&self) -> Result<(), Failure> {
        match self.sender.most_streams() {
            LEAST.. => Ok(()),
            few => {
                let why = format!("it allows {few}, and dlock needs {LEAST}");
                Err(Failure::new(FewStreams, NotApplied, why))
            }
        }
    }

    /// Sends a request and waits for the answer until the deadline, with a new login if needed. It
    /// waits for others if the server allows few streams at a time.
    pub(super) async fn call<R: Unary>(
        &self,
        request: R,
        deadline: Instant,
    ) -> Result<(Header, R::Response), Failure> {
        let _under_way = match self.begin() {
            Some(under_way) => under_way,
            // Boxed, since most requests find room at once.
            None => timeout_at(deadline, Box::pin(self.room()))
                .await
                .map_err(|_| Failure::late().not_applied())?,
        };
        self.call_first(request, deadline).await
    }

    fn begin(&self) -> Option<UnderWay<'_>> {
        let most = self.sender.most_streams().saturating_sub(KEPT).max(1);
        let more = |now| (now < most).then_some(now + 1);
        let begun = self.under_way.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        // Made only if it counts: its end is counted, too.
        begun.is_ok().then(|| UnderWay(self))
    }

    async fn room(&self) -> UnderWay<'_> {
        loop {
            let mut answered = pin!(self.answered.notified());
            answered.as_mut().enable();
            if let Some(under_way) = self.begin() {
                return under_way;
            }
            answered.await;
        }
    }

    /// Like [`call`](Self::call), without waiting for others.
    pub(super) async fn call_first<R: Unary>(
        &self,
        request: R,
        deadline: Instant,
    ) -> Result<(Header, R::Response), Failure> {
        let token = self.token();
        let again = self.login.is_some().then(|| request.clone());
        match (self.once(request, &token, deadline).await, again) {
            (Err(failure), Some(again)) if failure.kind() == StaleToken => {
                self.log_in(token.number, deadline).await.map_err(Failure::not_applied)?;
                self.once(again, &self.token(), deadline).await
            }
            (Err(failure), None) if failure.kind() == StaleToken => {
                Err(failure.with_kind(WrongUser))
            }
            (answer, _) => answer,
        }
    }

    /// Gets a token, unless there is a newer one than that with this number.
    pub(super) async fn log_in(&self, stale: u64, deadline: Instant) -> Result<(), Failure> {
        let Some((name, password)) = self.login.clone() else {
            return Err(Failure::new(WrongUser, NotApplied, "there is no user"));
        };
        let turn = timeout_at(deadline, self.turn.lock()).await;
        let _turn = turn.map_err(|_| Failure::late())?;
        if self.token.lock().number != stale {
            return Ok(());
        }
        let request = AuthenticateRequest { name, password };
        let text = match self.once(request, &Token::default(), deadline).await {
            Ok((_, answer)) => {
                let mut text = MetadataValue::try_from(answer.token).map_err(|_| {
                    Failure::new(Protocol, NotApplied, "the token is not printable")
                })?;
                text.set_sensitive(true);
                Some(text)
            }
            Err(failure) if failure.kind() == AuthDisabled => None,
            Err(failure) => return Err(failure),
        };
        *self.token.lock() = Token { number: stale + 1, text };
        Ok(())
    }

    async fn once<R: Unary>(
        &self,
        request: R,
        token: &Token,
        deadline: Instant,
    ) -> Result<(Header, R::Response), Failure> {
        let codec = Codec::<R, R::Response>::default();
        let mut grpc = self.grpc();
        let path = PathAndQuery::from_static(R::PATH);
        // Boxed, since it is large: every future around it would be larger, and be moved as a whole.
        let answer = Box::pin(grpc.unary(with_token(request, token), path, codec));
        let answer = timeout_at(deadline, answer).await.map_err(|_| Failure::late())??;
        Ok(with_header(answer.into_inner()))
    }

    /// Opens a stream. It returns with the first answer, since etcd sends nothing before.
    pub(super) async fn stream<Q, A>(
        self: Arc<Self>,
        path: &'static str,
        token: Token,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let codec = Codec::<Q, A>::default();
        let request = with_token(requests, &token);
        let mut grpc = self.grpc();
        drop(self);
        let answers = grpc.streaming(request, PathAndQuery::from_static(path), codec);
        Ok(answers.await?.into_inner())
    }

    fn grpc(&self) -> Grpc<Sender> {
        Grpc::with_origin(self.sender.clone(), self.origin.clone())
            .max_decoding_message_size(LARGEST)
    }
}

/// Protocol buffers in small buffers.
struct Codec<Q, A>(PhantomData<(Q, A)>);

impl<Q, A> Default for Codec<Q, A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q, A> tonic::codec::Codec for Codec<Q, A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstEncoder<Q>;
    type Decoder = ProstDecoder<A>;

    fn encoder(&mut self) -> ProstEncoder<Q> {
        ProstEncoder::new(BufferSettings::new(BUFFER, LARGEST))
    }

    fn decoder(&mut self) -> ProstDecoder<A> {
        ProstDecoder::new(BufferSettings::new(BUFFER, LARGEST))
    }
}

fn with_token<T>(message: T, token: &Token) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(text) = &token.text {
        request.metadata_mut().insert("token", text.clone());
    }
    request
}

/// Separates the header from an answer. A header that is missing, as in the list of alarms of 3.4,
/// is one of no member and of no term.
pub(super) fn with_header<R: Response>(mut answer: R) -> (Header, R) {
    (answer.take_header().unwrap_or_default(), answer)
}
