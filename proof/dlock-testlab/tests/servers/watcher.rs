//! A session with a ZooKeeper server that watches a node, with byte-exact reads.

use dlock_testlab::Stop;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The number of an event.
const EVENT: i32 = -1;

pub(crate) struct Watcher(TcpStream);

impl Watcher {
    pub(crate) async fn connect(address: &str) -> Result<Self, Stop> {
        let mut watcher = Self(TcpStream::connect(address).await?);
        // Version, last transaction seen, timeout, no previous session, and its password.
        let mut hello = vec![0; 12];
        hello.extend(30_000_i32.to_be_bytes());
        hello.extend([0; 8]);
        hello.extend(16_i32.to_be_bytes());
        hello.extend([0; 16]);
        watcher.send(&hello).await?;
        watcher.receive().await?;
        Ok(watcher)
    }

    /// Reads a node and sets a watch. Returns whether the node exists.
    pub(crate) async fn watch(&mut self, path: &str) -> Result<bool, Stop> {
        let (number, get) = (7_i32, 4_i32);
        let length = i32::try_from(path.len())?;
        let head = [number, get, length].map(i32::to_be_bytes).concat();
        self.send(&[&head, path.as_bytes(), &[1]].concat()).await?;
        let answer = self.receive().await?;
        assert_eq!(answer[..4], number.to_be_bytes());
        Ok(answer[12..16] == [0; 4])
    }

    /// Waits for an event.
    pub(crate) async fn event(&mut self) -> Result<(), Stop> {
        assert_eq!(self.receive().await?[..4], EVENT.to_be_bytes());
        Ok(())
    }

    async fn send(&mut self, record: &[u8]) -> Result<(), Stop> {
        let length = i32::try_from(record.len())?.to_be_bytes();
        Ok(self.0.write_all(&[&length, record].concat()).await?)
    }

    async fn receive(&mut self) -> Result<Vec<u8>, Stop> {
        let mut record = vec![0; usize::try_from(self.0.read_i32().await?)?];
        self.0.read_exact(&mut record).await?;
        Ok(record)
    }
}
