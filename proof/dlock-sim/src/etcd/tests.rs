//! The data of a member and a real server get the same requests. They have to give the same answers,
//! revisions and events.

use std::{cell::RefCell, fmt};

use dlock_testlab::{
    Stop, Verdict,
    client::run_on_threads,
    etcd::{EtcdServer, Options},
};
use h2::{RecvStream, SendStream, client::SendRequest};
use http::{HeaderMap, Request};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use prost::{Message, bytes::Bytes};
use tokio::{net::TcpStream, runtime::Handle, task::block_in_place};

use super::{
    data::{CallError, MemberData, Proposal},
    framed,
    messages::*,
    next_message,
};

const KEYS: [&str; 4] = ["a", "b", "bb", "c"];
/// The key whose change is the last event of a case.
const MARK: &str = "mark";

/// The data, and a connection to a real server.
struct Comparison {
    fake: MemberData,
    real: SendRequest<Bytes>,
    /// The ids that the real server has given to leases.
    leases: Vec<i64>,
    /// The revision at which the case has begun.
    began: i64,
    /// The revisions of the events of each watch of [`watches`].
    events: [Vec<i64>; 3],
}

fn watches() -> [WatchCreateRequest; 3] {
    let watch = |watch_id, key: &'static str, end: &'static str, filters| WatchCreateRequest {
        key: key.into(),
        range_end: end.into(),
        filters,
        watch_id,
    };
    let no_puts = vec![FilterType::NoPut.into()];
    [watch(1, "a", "c", no_puts), watch(2, "b", "", Vec::new()), watch(3, MARK, "", Vec::new())]
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(work))
}

/// An answer of the real server that is being received.
struct AnswerStream {
    sending: SendStream<Bytes>,
    head: HeaderMap,
    body: RecvStream,
    received: Vec<u8>,
}

impl AnswerStream {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(message) = next_message(&mut self.received) {
                return Some(message);
            }
            let part = self.body.data().await?.unwrap();
            self.body.flow_control().release_capacity(part.len()).unwrap();
            self.received.extend_from_slice(&part);
        }
    }
}

impl Comparison {
    /// Opens a stream of the real server with a message.
    async fn open(&self, path: &str, message: &[u8], is_last: bool) -> AnswerStream {
        let request = Request::post(format!("http://etcd{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let mut real = self.real.clone().ready().await.unwrap();
        let (answer, mut sending) = real.send_request(request.body(()).unwrap(), false).unwrap();
        sending.send_data(framed(message).into(), is_last).unwrap();
        let (head, body) = answer.await.unwrap().into_parts();
        AnswerStream { sending, head: head.headers, body, received: Vec::new() }
    }

    /// Sends a request to the real server. The error is the code and the text.
    fn ask(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        wait(async {
            let mut answer = self.open(path, message, true).await;
            let message = answer.next().await;
            let trailers = answer.body.trailers().await.unwrap().unwrap_or_default();
            let status = if trailers.is_empty() { answer.head } else { trailers };
            let field = |name: &str| status.get(name).map_or("", |field| field.to_str().unwrap());
            match field("grpc-status") {
                "0" => Ok(message.unwrap()),
                code => Err(format!("{code} {}", field("grpc-message"))),
            }
        })
    }

    fn call<R: Unary>(&self, request: &R) -> R::Response {
        let answer = self.ask(R::PATH, &request.encode_to_vec()).unwrap();
        <R::Response>::decode(&*answer).unwrap()
    }

    /// Begins a case, without keys and leases.
    fn clear(&mut self) {
        let every = Bytes::from_static(b"\0");
        self.call(&DeleteRangeRequest { key: every.clone(), range_end: every });
        for id in std::mem::take(&mut self.leases) {
            self.call(&LeaseRevokeRequest { id });
        }
        let put = PutRequest { key: MARK.into(), ..PutRequest::default() };
        self.began = self.call(&put).header.unwrap().revision;
        self.fake = MemberData::at(self.began - 1);
        self.fake.apply(&Proposal::Put(put), Header::default()).unwrap();
        self.fake.apply(&Proposal::Nothing, Header::default()).unwrap();
        self.events = Default::default();
    }

    /// Sends a request to both, and compares the answers.
    fn compare(&mut self, mut asked: Proposal) -> Result<(), TestCaseError> {
        let (path, message) = encoded(&asked);
        let real = self.ask(path, &message);
        if let (Proposal::Grant { id, .. }, Ok(real)) = (&mut asked, &real) {
            *id = LeaseGrantResponse::decode(&**real).unwrap().id;
            self.leases.push(*id);
        }
        let fake = self.fake.apply(&asked, Header::default());
        for (events, watch) in self.events.iter_mut().zip(watches()) {
            let new = self.fake.events(&watch).into_iter();
            events.extend(new.filter_map(|event| Some(event.kv?.mod_revision)));
        }
        if let (Proposal::Revoke(revoked), Ok(_)) = (&asked, &fake) {
            self.leases.retain(|id| id != revoked);
        }
        let fake = fake.map_err(|CallError(code, text)| format!("{code} {text}"));
        let [fake, real] = [fake, real].map(|answer| answer.map(|answer| text(&asked, &answer)));
        prop_assert_eq!(fake, real, "{:?}", asked);
        Ok(())
    }

    /// Compares the events of the real server, which come on this stream, and the leases.
    fn compare_events(&mut self, stream: &mut AnswerStream) -> Result<(), TestCaseError> {
        let mark = PutRequest { key: MARK.into(), ..PutRequest::default() };
        self.compare(Proposal::Put(mark))?;
        let mut real = <[Vec<i64>; 3]>::default();
        while real[2].is_empty() {
            let message = wait(stream.next()).unwrap();
            let message = WatchResponse::decode(&*message).unwrap();
            let events = message.events.iter().filter_map(|event| event.kv.as_ref());
            let of = usize::try_from(message.watch_id - 1).unwrap();
            real[of].extend(events.map(|kv| kv.mod_revision));
        }
        prop_assert_eq!(&self.events, &real);
        for id in &self.leases {
            let left = self.call(&LeaseTimeToLiveRequest { id: *id }).ttl;
            let ttl = self.fake.leases[id].ttl;
            prop_assert!((1..=ttl).contains(&left), "{} of {}", left, ttl);
        }
        Ok(())
    }

    /// Sets the watches on a new stream of the real server.
    async fn watch(&self) -> AnswerStream {
        let mut messages = watches()
            .into_iter()
            .map(|watch| WatchRequest { create: Some(watch), cancel: None }.encode_to_vec());
        let first = messages.next().unwrap();
        let mut stream = self.open("/etcdserverpb.Watch/Watch", &first, false).await;
        for message in messages {
            stream.sending.send_data(framed(&message).into(), false).unwrap();
        }
        for _ in watches() {
            let created = WatchResponse::decode(&*stream.next().await.unwrap()).unwrap();
            assert!(created.created, "{created:?}");
        }
        stream
    }
}

fn encoded(asked: &Proposal) -> (&'static str, Vec<u8>) {
    fn of<R: Unary>(request: &R) -> (&'static str, Vec<u8>) {
        (R::PATH, request.encode_to_vec())
    }
    match asked {
        Proposal::Read(read) => of(read),
        Proposal::Put(put) => of(put),
        Proposal::Delete(delete) => of(delete),
        Proposal::Txn(txn) => of(txn),
        Proposal::Grant { ttl, .. } => of(&LeaseGrantRequest { ttl: *ttl }),
        Proposal::Revoke(id) => of(&LeaseRevokeRequest { id: *id }),
        Proposal::Nothing => unreachable!("no client sends it"),
    }
}

/// Returns an answer and its revision as text.
fn text(asked: &Proposal, answer: &[u8]) -> String {
    fn of<R: Response + fmt::Debug>(answer: &[u8]) -> String {
        let mut answer = R::decode(answer).unwrap();
        let revision = answer.take_header().map(|header| header.revision);
        format!("{revision:?} {answer:?}")
    }
    match asked {
        Proposal::Read(_) => of::<RangeResponse>(answer),
        Proposal::Delete(_) => of::<DeleteRangeResponse>(answer),
        Proposal::Txn(_) => of::<TxnResponse>(answer),
        Proposal::Grant { .. } => of::<LeaseGrantResponse>(answer),
        _ => of::<Done>(answer),
    }
}

fn pick<T: Clone>(of: &[T], byte: u8) -> T {
    of[usize::from(byte) % of.len()].clone()
}

fn key(byte: u8) -> Bytes {
    pick(&KEYS, byte).into()
}

fn delete(byte: u8) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key(byte), ..DeleteRangeRequest::default() }
}

fn end(byte: u8) -> Bytes {
    pick(&["", "", "b", "c", "d", "a"], byte).into()
}

impl Comparison {
    fn lease(&self, byte: u8) -> i64 {
        let unknown = [0, 0, 77];
        pick(&[&self.leases[..], &unknown].concat(), byte)
    }

    /// Returns a revision of this case, or one that is still to come.
    fn revision(&self, byte: u8) -> i64 {
        (self.fake.revision + 1 - i64::from(byte % 5)).max(self.began)
    }

    fn read(&self, [at, to, limit, order, more]: [u8; 5]) -> RangeRequest {
        RangeRequest {
            key: key(at),
            range_end: end(to),
            limit: pick(&[0, 0, 1, 2], limit),
            sort_order: pick(&[SortOrder::None, SortOrder::Descend], order).into(),
            sort_target: pick(&[SortTarget::Key, SortTarget::Create], order).into(),
            serializable: order % 8 > 3,
            keys_only: more % 2 == 0,
            // Without an order, etcd would limit the keys before it selects these.
            max_create_revision: match order % 2 {
                1 if more % 3 == 0 => self.revision(more / 3),
                _ => 0,
            },
            ..RangeRequest::default()
        }
    }

    fn put(&self, at: u8, value: u8, lease: u8) -> PutRequest {
        PutRequest { key: key(at), value: vec![value].into(), lease: self.lease(lease) }
    }

    fn condition(&self, [at, to, how, since]: [u8; 4]) -> Compare {
        let result = pick(&[CompareResult::Equal, CompareResult::Less], how);
        let since = if since % 2 == 0 { 0 } else { self.revision(since / 2) };
        match how % 4 > 1 {
            true => Compare::created(key(at), result, since).up_to(end(to)),
            false => Compare::modified(key(at), result, since).up_to(end(to)),
        }
    }

    /// Returns a transaction with another one in it. No key is changed twice.
    fn txn(&self, bytes: [u8; 13]) -> TxnRequest {
        let [_, a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let delete = delete(a + 2);
        let inner = TxnRequest {
            compare: vec![self.condition([e, f, g, h])],
            success: vec![self.put(a + 1, c, d).into(), self.read([a, b, c, l, k]).into()],
            failure: vec![delete.clone().into()],
        };
        let read = self.read([i, j, k, l, b]);
        TxnRequest {
            compare: vec![self.condition([i, j, k, l]); usize::from(b % 3)],
            success: vec![self.put(a, b, h).into(), read.clone().into(), inner.clone().into()],
            failure: vec![inner.into(), read.clone().into(), delete.into(), read.into()],
        }
    }

    fn request(&self, bytes: [u8; 13]) -> Proposal {
        let [verb, a, b, c, d, e, ..] = bytes;
        let read = self.read([a, b, c, d, e]);
        match verb % 16 {
            0..4 => Proposal::Read(read),
            4..7 => Proposal::Put(self.put(a, b, c)),
            7 | 8 => Proposal::Delete(delete(a)),
            9 => Proposal::Grant { id: 0, ttl: pick(&[600, 3600], a) },
            10 => Proposal::Revoke(self.lease(a)),
            _ => Proposal::Txn(self.txn(bytes.map(|byte| byte % 64))),
        }
    }
}

#[test]
fn the_data_of_a_member_are_those_of_a_real_server() {
    run_on_threads("etcd", async {
        let server = EtcdServer::start(&Options::new()).await?;
        if !server.version().starts_with("3.4.") {
            return Err(Stop::undecided("the real server is not etcd 3.4"));
        }
        let stream = TcpStream::connect(server.address()).await?;
        stream.set_nodelay(true)?;
        let (real, connection) = h2::client::handshake(stream).await?;
        Handle::current().spawn(connection);
        let (fake, events) = (MemberData::at(0), Default::default());
        explore(Comparison { fake, real, leases: Vec::new(), began: 0, events })
    });
}

/// Sends random requests.
fn explore(mut both: Comparison) -> Verdict {
    let config =
        ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    both.clear();
    // The shortest TTL. The lease ends by itself.
    both.compare(Proposal::Grant { id: 0, ttl: 0 })?;
    both.leases.clear();
    let both = RefCell::new(both);
    let run = |steps: Vec<[u8; 13]>| {
        let mut both = both.borrow_mut();
        both.clear();
        let mut stream = wait(both.watch());
        for step in steps {
            let asked = both.request(step);
            both.compare(asked)?;
        }
        both.compare_events(&mut stream)
    };
    TestRunner::new(config).run(&vec(any::<[u8; 13]>(), 1..40), run).map_err(Stop::failed)
}
