//! The server's end of a connection: gRPC over HTTP/2. It has no task: it runs when it gets bytes, and
//! when its bytes are taken.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use h2::{
    RecvStream, SendStream,
    server::{Builder, Connection, Handshake, SendResponse},
};
use http::{HeaderMap, HeaderValue, Response};
use prost::bytes::Bytes;
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf, duplex};

use super::{data::CallError, framed, next_message};

/// More bytes than are under way on a connection.
const ROOM: usize = 1 << 22;

/// What a client has sent on a stream.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) stream: u32,
    pub(super) path: String,
    /// `None` if nothing follows.
    pub(super) message: Option<Vec<u8>>,
}

pub(super) struct Wire {
    /// The other end of what h2 takes for a socket.
    client: DuplexStream,
    state: State,
    streams: BTreeMap<u32, Stream>,
}

enum State {
    Opening(Handshake<DuplexStream, Bytes>),
    Open(Connection<DuplexStream, Bytes>),
    Broken,
}

struct Stream {
    path: String,
    body: RecvStream,
    /// The bytes that are no complete message yet.
    received: Vec<u8>,
    has_ended: bool,
    respond: SendResponse<Bytes>,
    /// Set with the first message of the answer.
    sending: Option<SendStream<Bytes>>,
}

impl Wire {
    pub(super) fn new() -> Self {
        let (client, server) = duplex(ROOM);
        // h2 uses the machine's clock to forget streams.
        let opening = Builder::new().reset_stream_duration(Duration::MAX).handshake(server);
        Self { client, state: State::Opening(opening), streams: BTreeMap::new() }
    }

    /// Receives bytes of the client.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<Received> {
        let mut context = Context::from_waker(Waker::noop());
        // There is room, unless the connection is broken.
        let _ = Pin::new(&mut self.client).poll_write(&mut context, bytes);
        self.run();
        let mut all = Vec::new();
        for (id, stream) in &mut self.streams {
            stream.read(*id, &mut all);
        }
        all
    }

    /// Sends a message of an answer.
    pub(super) fn send(&mut self, stream: u32, message: &[u8]) {
        // If it was reset, nobody waits for the answer.
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        if stream.sending.is_none() {
            stream.sending = stream.respond.send_response(head(HeaderMap::new()), false).ok();
        }
        if let Some(sending) = &mut stream.sending {
            let _ = sending.send_data(framed(message).into(), false);
        }
    }

    /// Ends an answer.
    pub(super) fn end(&mut self, stream: u32, refusal: Option<CallError>) {
        let Some(mut stream) = self.streams.remove(&stream) else { return };
        let CallError(code, text) = refusal.unwrap_or(CallError(0, ""));
        let mut status = HeaderMap::new();
        status.insert("grpc-status", code.into());
        status.insert("grpc-message", HeaderValue::from_static(text));
        match &mut stream.sending {
            Some(sending) => drop(sending.send_trailers(status)),
            None => drop(stream.respond.send_response(head(status), true)),
        }
    }

    /// Takes the bytes that go to the client.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.run();
        let mut context = Context::from_waker(Waker::noop());
        let (mut taken, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let mut buffer = ReadBuf::new(&mut part);
            match Pin::new(&mut self.client).poll_read(&mut context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    taken.extend_from_slice(buffer.filled());
                }
                _ => return taken,
            }
        }
    }

    fn run(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.state = match &mut self.state {
                State::Opening(opening) => match Pin::new(opening).poll(&mut context) {
                    Poll::Ready(Ok(open)) => State::Open(open),
                    Poll::Ready(Err(_)) => State::Broken,
                    Poll::Pending => return,
                },
                State::Open(connection) => match connection.poll_accept(&mut context) {
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        let (head, body) = request.into_parts();
                        let stream = Stream {
                            path: head.uri.path().to_owned(),
                            body,
                            received: Vec::new(),
                            has_ended: false,
                            respond,
                            sending: None,
                        };
                        self.streams.insert(stream.respond.stream_id().as_u32(), stream);
                        continue;
                    }
                    Poll::Ready(_) => State::Broken,
                    Poll::Pending => return,
                },
                State::Broken => return,
            };
        }
    }
}

impl Stream {
    fn read(&mut self, id: u32, all: &mut Vec<Received>) {
        let mut context = Context::from_waker(Waker::noop());
        while !self.has_ended
            && let Poll::Ready(part) = self.body.poll_data(&mut context)
        {
            match part {
                Some(Ok(data)) => {
                    let _ = self.body.flow_control().release_capacity(data.len());
                    self.received.extend_from_slice(&data);
                }
                _ => self.has_ended = true,
            }
            let mut add = |message| {
                all.push(Received { stream: id, path: self.path.clone(), message });
            };
            while let Some(message) = next_message(&mut self.received) {
                add(Some(message));
            }
            if self.has_ended {
                add(None);
            }
        }
    }
}

fn head(status: HeaderMap) -> Response<()> {
    let mut head = Response::new(());
    *head.headers_mut() = status;
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    head
}
