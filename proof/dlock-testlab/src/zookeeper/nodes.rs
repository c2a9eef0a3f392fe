//! Access to the nodes of a server without the client under test.
//!
//! The connection shares no code with that client, and implements the part of ZooKeeper's protocol
//! that is needed to read and change nodes. Each message is a length and that many bytes; numbers
//! are big-endian.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ZooKeeperServer, server::SUPER};
use crate::{Stop, Verdict, wait::until};

impl ZooKeeperServer {
    /// Creates a persistent node without access restrictions.
    ///
    /// # Errors
    /// If the node exists or its parent does not, and if no answer arrives.
    pub async fn create(&self, path: &str, data: &str) -> Verdict {
        let mut wire = self.wire().await?;
        wire.create(path, data.as_bytes()).await?;
        wire.close().await
    }

    /// Returns the data of a node; `None` if there is no such node.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn data(&self, path: &str) -> Result<Option<Vec<u8>>, Stop> {
        let mut wire = self.wire().await?;
        let data = wire.data(path).await?;
        wire.close().await?;
        Ok(data)
    }

    /// Returns the paths of all nodes below this one, sorted and without ZooKeeper's own; none if
    /// there is no such node.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn nodes_under(&self, path: &str) -> Result<Vec<String>, Stop> {
        let mut wire = self.wire().await?;
        let mut found = below(&mut wire, path).await?;
        wire.close().await?;
        found.sort();
        Ok(found)
    }

    /// Deletes a node, if it exists, and all nodes below it, whichever client created them.
    ///
    /// # Errors
    /// If another client adds nodes faster, and if no answer arrives.
    pub async fn delete_recursively(&self, path: &str) -> Verdict {
        until("the nodes are deleted", || async {
            let mut wire = self.wire().await?;
            let mut paths = below(&mut wire, path).await?;
            // Parents were found before their children.
            paths.insert(0, path.to_owned());
            for path in paths.iter().rev().filter(|path| *path != "/") {
                match wire.delete(path).await? {
                    Ok(()) | Err(Refused::NoNode) => {}
                    Err(why) => return Err(Stop::failed(format!("{path}: {why:?}"))),
                }
            }
            wire.close().await
        })
        .await
    }

    async fn wire(&self) -> Result<Wire, Stop> {
        Wire::connect(&self.address()).await
    }
}

/// Returns all nodes below this one, parents before their children.
async fn below(wire: &mut Wire, path: &str) -> Result<Vec<String>, Stop> {
    let mut found = vec![path.to_owned()];
    let mut looked = 0;
    while let Some(parent) = found.get(looked).cloned() {
        let names = wire.children(&parent).await?.unwrap_or_default();
        let children = names.iter().map(|name| format!("{}/{name}", parent.trim_end_matches('/')));
        found.extend(children.filter(|child| child != "/zookeeper"));
        looked += 1;
    }
    found.remove(0);
    Ok(found)
}

/// The longest time for an answer. It takes longer only if the server is paused or has no leader.
const BOUND: Duration = Duration::from_secs(5);

/// The session timeout, longer than a connection. The connection sends no pings.
const SESSION: i32 = 30_000;

/// The operations, by their numbers.
#[derive(Clone, Copy, Debug)]
enum Op {
    Create = 1,
    Delete = 2,
    Data = 4,
    Children = 8,
    Sync = 9,
    Auth = 100,
    Close = -11,
}

/// The reasons for which the server refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    NoNode,
    NotEmpty,
    Other(i32),
}

/// A session as the administrator, whom no access list restricts.
#[derive(Debug)]
struct Wire(TcpStream);

impl Wire {
    /// Opens a session that sees all earlier writes.
    async fn connect(address: &str) -> Result<Self, Stop> {
        let mut wire = Self(TcpStream::connect(address).await?);
        // Version, last transaction seen, timeout, no previous session, and its password.
        let hello = Record::new().int(0).long(0).int(SESSION).long(0).bytes(&[0; 16]);
        wire.send(hello).await?;
        wire.receive().await?;
        let credentials = Record::new().int(0).text("digest").bytes(SUPER.as_bytes());
        wire.ask(Op::Auth, credentials).await?.map_err(refused)?;
        // Another server may have accepted the writes, and this one may not have them yet.
        wire.ask(Op::Sync, Record::new().text("/")).await?.map_err(refused)?;
        Ok(wire)
    }

    /// Returns the names of the children, or `None` if there is no such node.
    async fn children(&mut self, path: &str) -> Result<Option<Vec<String>>, Stop> {
        match self.ask(Op::Children, Record::new().text(path).flag(false)).await? {
            Ok(mut answer) => {
                let count = answer.int()?;
                let names = (0..count).map(|_| Ok(String::from_utf8(answer.bytes()?)?));
                Ok(Some(names.collect::<Result<_, Stop>>()?))
            }
            Err(Refused::NoNode) => Ok(None),
            Err(other) => Err(refused(other)),
        }
    }

    /// Returns the data of the node, or `None` if there is no such node.
    async fn data(&mut self, path: &str) -> Result<Option<Vec<u8>>, Stop> {
        match self.ask(Op::Data, Record::new().text(path).flag(false)).await? {
            Ok(mut answer) => Ok(Some(answer.bytes()?)),
            Err(Refused::NoNode) => Ok(None),
            Err(other) => Err(refused(other)),
        }
    }

    /// Creates a persistent node without access restrictions.
    async fn create(&mut self, path: &str, data: &[u8]) -> Result<(), Stop> {
        let everybody = Record::new().int(1).int(31).text("world").text("anyone");
        let record = Record::new().text(path).bytes(data).append(&everybody).int(0);
        self.ask(Op::Create, record).await?.map(|_| ()).map_err(refused)
    }

    /// Deletes a node of any version.
    async fn delete(&mut self, path: &str) -> Result<Result<(), Refused>, Stop> {
        let record = Record::new().text(path).int(-1);
        Ok(self.ask(Op::Delete, record).await?.map(|_| ()))
    }

    /// Ends the session, which would otherwise last until its timeout.
    async fn close(mut self) -> Result<(), Stop> {
        self.ask(Op::Close, Record::new()).await?.map(|_| ()).map_err(refused)
    }

    async fn ask(&mut self, op: Op, body: Record) -> Result<Result<Answer, Refused>, Stop> {
        // There is one request at a time, so all requests may have the same number.
        let number = if matches!(op, Op::Auth) { -4 } else { 1 };
        self.send(Record::new().int(number).int(op as i32).append(&body)).await?;
        let mut answer = self.receive().await?;
        let (_number, _transaction, error) = (answer.int()?, answer.take::<8>()?, answer.int()?);
        Ok(match error {
            0 => Ok(answer),
            -101 => Err(Refused::NoNode),
            -111 => Err(Refused::NotEmpty),
            other => Err(Refused::Other(other)),
        })
    }

    async fn send(&mut self, record: Record) -> Result<(), Stop> {
        Ok(self.0.write_all(&Record::new().bytes(&record.0).0).await?)
    }

    async fn receive(&mut self) -> Result<Answer, Stop> {
        let receive = async {
            let length = usize::try_from(self.0.read_i32().await?)?;
            let mut bytes = vec![0; length];
            self.0.read_exact(&mut bytes).await?;
            Ok::<_, Stop>(Answer { bytes, read: 0 })
        };
        match timeout(BOUND, receive).await {
            Ok(answer) => answer,
            Err(_) => Err(Stop::failed(format!("no answer within {BOUND:?}"))),
        }
    }
}

fn refused(why: Refused) -> Stop {
    Stop::failed(format!("the server refuses: {why:?}"))
}

/// A request.
#[derive(Debug)]
struct Record(Vec<u8>);

impl Record {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn append(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }

    fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    fn bytes(self, value: &[u8]) -> Self {
        let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
        let mut record = self.int(length);
        record.0.extend(value);
        record
    }
}

/// An answer, and how much of it has been read.
#[derive(Debug)]
struct Answer {
    bytes: Vec<u8>,
    read: usize,
}

impl Answer {
    fn int(&mut self) -> Result<i32, Stop> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Stop> {
        // A null value has the length -1.
        let length = usize::try_from(self.int()?).unwrap_or_default();
        let rest = self.bytes.get(self.read..self.read + length).ok_or_else(short)?;
        self.read += length;
        Ok(rest.to_vec())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        let taken = rest.first_chunk::<N>().copied().ok_or_else(short)?;
        self.read += N;
        Ok(taken)
    }
}

fn short() -> Stop {
    Stop::failed("the answer is too short")
}
