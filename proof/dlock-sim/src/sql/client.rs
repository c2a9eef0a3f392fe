//! The engine of `dlock-sql` on a simulated PostgreSQL server.
//!
//! This file is a module of `dlock-sql` in builds with `cfg(dlock_sim)`. It takes the place of the
//! driver and of the links above it: a statement is sent as its name and its arguments, not as SQL.
//! Timeouts, reconnection and the meaning of errors are those of `postgres/link.rs`.

#[path = "wire.rs"]
mod wire;

use std::{io, sync::Arc, time::Duration};

use dlock_core::{
    Certainty, DynBackend, Error, Finding, LockName, Scope, WakeUp,
    sim::{self, Stream},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Handle,
    time::timeout,
};

use crate::{
    PostgresConfig,
    engine::{
        Conn, Connections, DurabilityMonitor, Engine, Fault, Listener, Mark, Micros, Notification,
        Paged, Range, ReconnectPauses, Row, RowsRead, Wanted, Write, guarantees, in_order, sample,
    },
    postgres::error::by_code,
    server::{Idle, late, silent_at_first},
};

/// The step of the server's clock.
const TICK: Micros = 1;

/// Opens the store at this address, with the options of a URL.
///
/// # Errors
/// As [`Postgres::open`](crate::Postgres::open).
pub async fn open(url: &str, address: &str) -> Result<DynBackend, Error> {
    let config = PostgresConfig::from_url(&url.parse()?)?;
    let home = rand::random_range(1..=u32::MAX);
    let mut link = SqlLink {
        address: address.into(),
        response_timeout: config.response_timeout,
        limit: config.response_timeout / 2,
        idle: Idle::new(),
        pauses: ReconnectPauses::new(),
        durability: DurabilityMonitor::new(false),
    };
    let durability = DurabilityMonitor::new(link.is_durable().await?);
    link.durability = durability.clone();
    let connections = Connections {
        sample: sample(&mut link).await,
        writers: (0..config.connections).map(|_| link.beside()).collect(),
        renewer: Some(link.beside()),
        reader: link.beside(),
        listener: Some(SqlListener { link, channel: channel(home), session: None }),
    };
    Ok(Arc::new(Engine::start(
        &Handle::current(),
        address.into(),
        guarantees(Scope::Network, WakeUp::Push),
        connections,
        config.settings(TICK, home),
        durability,
    )))
}

/// Opens sessions, and runs statements on them, each to its end or to its timeout.
struct SqlLink {
    address: Arc<str>,
    response_timeout: Duration,
    limit: Duration,
    idle: Idle<Session>,
    pauses: ReconnectPauses,
    durability: DurabilityMonitor,
}

/// A connection to the server.
struct Session {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

type Rows = Vec<Vec<String>>;

impl Session {
    /// Runs a statement. Returns the rows, or the code of the refusal.
    async fn ask(&mut self, statement: &[String]) -> io::Result<Result<Rows, String>> {
        self.stream.write_all(&wire::encoded(statement)).await?;
        let answer = self.receive().await?;
        let [kind, about, cells @ ..] = &*answer else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if kind == wire::ERROR {
            return Ok(Err(about.clone()));
        }
        // Their number, and the cells of all.
        let width = cells.len().checked_div(number(about)).unwrap_or(1);
        Ok(Ok(cells.chunks(width.max(1)).map(<[String]>::to_vec).collect()))
    }

    /// Receives the next message.
    ///
    /// # Cancel safety
    /// Dropping the future loses no bytes.
    async fn receive(&mut self) -> io::Result<Vec<String>> {
        let mut part = [0; 4096];
        loop {
            if let Some(message) = wire::take(&mut self.received) {
                return Ok(message);
            }
            match self.stream.read(&mut part).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.received.extend_from_slice(&part[..read]),
            }
        }
    }
}

impl SqlLink {
    /// Returns another link, which shares its idle sessions.
    fn beside(&self) -> Self {
        Self {
            address: self.address.clone(),
            idle: self.idle.clone(),
            pauses: ReconnectPauses::new(),
            durability: self.durability.clone(),
            ..*self
        }
    }

    /// Opens a session, and runs the first statement on it.
    async fn connect(&self) -> Result<Session, Fault> {
        let stream = sim::connect(&self.address).await.map_err(lost)?;
        let mut session = Session { stream, received: Vec::new() };
        // As `PostgresConfig::greeting`.
        let limits = [10, 3].map(|part| (self.response_timeout / part).as_micros().to_string());
        let asked = session.ask(&statement("greeting", limits)).await.map_err(lost)?;
        self.durability.record(refused(asked)?.concat().iter().all(|is| is == "true"));
        Ok(session)
    }

    /// Opens a session that receives the notifications of a channel.
    async fn listen(&self, channel: &str) -> Result<Session, Fault> {
        let mut session = self.connect().await?;
        let listen = statement("listen", [channel.to_owned()]);
        refused(session.ask(&listen).await.map_err(lost)?)?;
        Ok(session)
    }

    async fn take(&mut self) -> Result<Session, Fault> {
        if self.idle.is_empty() {
            self.pauses.pause().await?;
        }
        if let Some(session) = self.idle.take() {
            return Ok(session);
        }
        let connected = timeout(self.limit, self.connect()).await;
        let connected = connected.unwrap_or_else(|_| Err(silent_at_first("PostgreSQL is")));
        connected.map_err(|fault| self.pauses.failed(fault.before_anything_was_sent()))
    }

    /// Runs a statement, which commits on its own.
    async fn fetch(
        &mut self,
        name: &str,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Rows, Fault> {
        let statement = statement(name, arguments);
        let mut session = self.take().await?;
        let fault = match timeout(self.limit, session.ask(&statement)).await {
            Ok(Ok(answer)) => {
                self.pauses.worked();
                self.idle.put(session);
                return refused(answer);
            }
            Ok(Err(error)) => lost(error),
            Err(_) => late(),
        };
        self.idle.clear();
        let fault = self.pauses.failed(fault);
        Err(match sim::has_mistake("no-answer-is-refusal") {
            true => fault.with_certainty(Certainty::NotApplied),
            false => fault,
        })
    }
}

fn refused(answer: Result<Rows, String>) -> Result<Rows, Fault> {
    answer.map_err(|code| by_code(&code, ""))
}

fn lost(error: io::Error) -> Fault {
    Fault::cut(format!("the connection was lost ({error})"))
}

fn statement(name: &str, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(arguments).collect()
}

impl Conn for SqlLink {
    const CAN_SKIP_SYNC: bool = true;

    fn bound(&mut self, limit: Duration) {
        self.limit = limit.min(self.response_timeout / 2);
    }

    async fn unlocked(&mut self, names: &[&LockName]) -> Result<Vec<String>, Fault> {
        Ok(self.fetch("unlocked", names.iter().map(ToString::to_string)).await?.concat())
    }

    async fn apply(&mut self, writes: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
        let arguments = |write: &Write| {
            let (seen, cut, time, snap) = write.fold_args();
            let numbers = [seen, cut, time, write.known_base(), write.known_len()];
            let [seen, cut, time, known, length] = numbers.map(|number| number.to_string());
            let [name, op] = [write.name.to_string(), write.op.clone()];
            [name, seen, cut, snap.to_owned(), op, time, known, length]
        };
        if let [write] = writes {
            let name = if write.skips_sync { "apply_one_without_sync" } else { "apply_one" };
            let [written, seen, mut cut, snap, op, time, known, length] = arguments(write);
            if write.fold.is_none() {
                cut = length;
            }
            let rows = self.fetch(name, [written, seen, cut, snap, op, time, known]).await?;
            return Ok(rows.iter().map(|cells| Ok(row(cells))).collect());
        }
        let rows = self.fetch("apply_many", writes.iter().flat_map(arguments)).await?;
        let named = |cells: &Vec<String>| (cells[0].clone(), Ok(row(&cells[1..])));
        Ok(in_order(writes, rows.iter().map(named).collect())?)
    }

    async fn read(&mut self, wanted: &[Wanted]) -> Result<RowsRead, Fault> {
        let of = |one: &Wanted| [one.name.to_string(), one.known_base().to_string()];
        let mut seen = RowsRead::of(wanted.len());
        for cells in self.fetch("read", wanted.iter().flat_map(of)).await? {
            let found = (cells[2] != wire::NULL).then(|| Ok(row(&cells[2..])));
            seen.put(number(&cells[0]), number(&cells[1]), found);
        }
        Ok(seen)
    }

    async fn page(
        &mut self,
        after: &str,
        skip: u32,
        old: Micros,
        most: u32,
    ) -> Result<Vec<Paged>, Fault> {
        let arguments = [after.to_owned(), old.to_string(), most.to_string(), skip.to_string()];
        let paged = |cells: &Vec<String>| {
            let row = (cells[3] != wire::NULL).then(|| row(&cells[2..]));
            Paged { name: cells[0].clone(), now: number(&cells[1]), row }
        };
        Ok(self.fetch("page", arguments).await?.iter().map(paged).collect())
    }

    /// The simulation does not list names.
    async fn range(&mut self, _: &Range, _: u32) -> Result<Vec<Paged>, Fault> {
        Ok(Vec::new())
    }

    async fn delete(&mut self, rows: &[(String, Mark)]) -> Result<(), Fault> {
        let of = |(name, mark): &(String, Mark)| {
            [name.clone(), mark.base.to_string(), mark.len.to_string()]
        };
        self.fetch("delete", rows.iter().flat_map(of)).await.map(drop)
    }

    async fn notify(&mut self, notifications: &[Notification]) -> Result<(), Fault> {
        let of = |one: &Notification| [channel(one.granted.home), one.to_string()];
        self.fetch("notify", notifications.iter().flat_map(of)).await.map(drop)
    }

    async fn is_durable(&mut self) -> Result<bool, Fault> {
        Ok(self.fetch("is_durable", []).await?.concat() == ["true"])
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        Ok(Vec::new())
    }

    async fn close(self) {
        drop(self.idle.into_last());
    }
}

fn number<N: std::str::FromStr>(cell: &str) -> N {
    cell.parse().ok().expect("the server sends a number")
}

/// Reads base, snap and log.
fn row(cells: &[String]) -> Row {
    Row { base: number(&cells[0]), snap: cells[1].clone(), log: cells[2].clone() }
}

/// The connection for notifications.
struct SqlListener {
    link: SqlLink,
    channel: String,
    session: Option<Session>,
}

impl Listener for SqlListener {
    fn is_open(&self) -> bool {
        self.session.is_some()
    }

    async fn open(&mut self) -> Result<(), Error> {
        self.session = None;
        let listening = timeout(self.link.response_timeout, self.link.listen(&self.channel)).await;
        self.session = Some(listening.unwrap_or_else(|_| Err(late()))?);
        Ok(())
    }

    async fn next(&mut self) -> Result<String, Error> {
        let session =
            self.session.as_mut().ok_or_else(|| lost(io::ErrorKind::NotConnected.into()))?;
        match <[String; 2]>::try_from(session.receive().await.map_err(lost)?) {
            Ok([kind, text]) if kind == wire::NOTIFICATION => Ok(text),
            _ => Err(lost(io::ErrorKind::InvalidData.into()).into()),
        }
    }
}

fn channel(home: u32) -> String {
    format!("dlock_{home:08x}")
}
