//! Connections between processes and servers: bytes in order, or an end.
//!
//! Each piece of bytes travels for a time of its own, but does not overtake another one of its
//! connection and direction. Pieces of different connections do overtake each other. A cut link holds
//! pieces back until it is whole again; then they arrive, or the connections break. Some connections
//! deliver them later than others. So a request may reach the server long after its client has given
//! up, connected anew, and gone on.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use dlock_core::sim::{Opening, Stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::{
    faults::{CUT, Micros, SLOW_MESSAGE},
    fnv,
    world::{self, World},
};

/// The interval at which a connection is asked for again if nothing answers.
pub(crate) const AGAIN: Micros = 200_000;
/// How much later than others a connection may deliver what a cut link held back.
const LATE: Range<Micros> = 50_000..1_500_000;

/// The link of a process to all servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// Nothing arrives at the servers.
    pub(crate) up_cut: bool,
    /// Nothing arrives at the process.
    pub(crate) down_cut: bool,
    /// The cut has held something back.
    held: bool,
    /// When it is whole again.
    until: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Server,
    Client,
}

/// What travels on a connection.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Vec<u8>),
    /// The sender has closed its end.
    End,
    /// The connection is broken.
    Reset,
}

/// A connection, for as long as one of its ends exists.
#[derive(Debug)]
pub(crate) struct Connection {
    process: usize,
    host: usize,
    /// The client's end exists.
    client: bool,
    /// The server's end exists.
    server: bool,
    received: VecDeque<u8>,
    ended: bool,
    broken: bool,
    waker: Option<Waker>,
    /// When the last piece arrives, to the server and to the client.
    last: [Micros; 2],
    /// What cut links hold back, to the server and to the client.
    held: [Vec<Piece>; 2],
}

impl World {
    pub(crate) fn travel(&mut self) -> Micros {
        let (chance, slow) = self.latency.slow.clone();
        if self.rng.chance(chance) {
            self.took(SLOW_MESSAGE);
            return self.rng.within(slow);
        }
        self.rng.within(self.latency.usual.clone())
    }

    /// Returns whether the link of the process lets nothing through in this direction.
    fn is_cut(&self, process: usize, to: To) -> bool {
        let link = self.links.get(&process).copied().unwrap_or_default();
        match to {
            To::Server => link.up_cut,
            To::Client => link.down_cut,
        }
    }

    /// Returns whether the link of the process holds something back that would go in this direction.
    pub(crate) fn meets_cut(&mut self, process: usize, to: To) -> bool {
        let is_cut = self.is_cut(process, to);
        if is_cut
            && let Some(link) = self.links.get_mut(&process)
            && !std::mem::replace(&mut link.held, true)
        {
            self.took(CUT);
        }
        is_cut
    }

    fn send(&mut self, id: u64, to: To, piece: Piece) {
        let Some(connection) = self.connections.get(&id) else { return };
        let process = connection.process;
        if self.meets_cut(process, to) {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.held[to as usize].push(piece);
            }
            return;
        }
        let arrives = self.now + self.travel();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let arrives = arrives.max(connection.last[to as usize]);
        connection.last[to as usize] = arrives;
        self.after(arrives - self.now, move |world| match to {
            To::Server => world.arrive_at_server(id, piece),
            To::Client => world.arrive_at_client(id, piece),
        });
    }

    fn arrive_at_client(&mut self, id: u64, piece: Piece) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match piece {
            // Nothing follows the end of a connection.
            _ if connection.broken => return,
            Piece::Data(bytes) => connection.received.extend(bytes),
            Piece::End => connection.ended = true,
            Piece::Reset => connection.broken = true,
        }
        if let Some(waker) = connection.waker.take() {
            waker.wake();
        }
    }

    fn arrive_at_server(&mut self, id: u64, piece: Piece) {
        let Some(host) = self.connections.get(&id).map(|connection| connection.host) else {
            return;
        };
        self.when_not_busy(host, move |world| world.execute(id, piece));
    }

    /// Lets a server execute something as soon as it is not busy, in the order of arrival.
    pub(crate) fn when_not_busy(&mut self, host: usize, work: impl FnOnce(&mut Self) + 'static) {
        let (now, host) = (self.now, &mut self.hosts[host]);
        if now < host.busy_until || !host.waiting.is_empty() {
            host.waiting.push_back(Box::new(work));
            return;
        }
        work(self);
    }

    fn execute(&mut self, id: u64, piece: Piece) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (process, index) = (connection.process, connection.host);
        let bytes = match piece {
            Piece::Data(bytes) if connection.server => bytes,
            Piece::Data(_) => return self.send(id, To::Client, Piece::Reset),
            Piece::End | Piece::Reset => {
                connection.server = false;
                if !connection.client {
                    self.connections.remove(&id);
                }
                return self.hosts[index].server.borrow_mut().closed(id);
            }
        };
        self.say_bytes(id, process, '>', &bytes);
        let server = Rc::clone(&self.hosts[index].server);
        server.borrow_mut().receive(self, id, &bytes);
    }

    /// Sends bytes of a server over a connection of which its end exists.
    pub(crate) fn answer(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get(&id).filter(|one| one.server) else { return };
        self.say_bytes(id, connection.process, '<', &bytes);
        self.send(id, To::Client, Piece::Data(bytes));
    }

    /// What the clock shows of the server of a connection.
    pub(crate) fn clock_of(&self, id: u64) -> Micros {
        self.connections.get(&id).map_or(0, |one| self.hosts[one.host].clock.at(self.now))
    }

    fn say_bytes(&mut self, id: u64, process: usize, way: char, bytes: &[u8]) {
        if self.prints {
            let text = String::from_utf8_lossy(bytes).replace("\r\n", " ");
            let text: String = text.chars().take(600).collect();
            return self.say(format_args!("process {process} connection {id} {way} {text}"));
        }
        let hash = fnv(bytes.len() as u64, bytes);
        self.say(format_args!("{id}{way}{hash:x}"));
    }

    /// A server executes nothing for this time; its connections live.
    pub(crate) fn host_is_busy(&mut self, host: usize, time: Micros) {
        let until = self.until(time);
        self.hosts[host].busy_until = until;
        self.after(until - self.now, move |world| {
            while world.now >= world.hosts[host].busy_until
                && let Some(work) = world.hosts[host].waiting.pop_front()
            {
                work(world);
            }
        });
    }

    /// A server stops, and with it its ends of all connections. It starts again after this time.
    pub(crate) fn host_restarts(&mut self, host: usize, keeps_data: bool, down: Micros) {
        let server = Rc::clone(&self.hosts[host].server);
        server.borrow_mut().restart(self, keeps_data);
        let until = self.until(down);
        let slot = &mut self.hosts[host];
        slot.waiting.clear();
        (slot.busy_until, slot.down_until) = (self.now, until);
        self.disconnect(host);
    }

    /// A server ends all its connections.
    pub(crate) fn disconnect(&mut self, host: usize) {
        for id in self.connections_of(|connection| connection.host == host && connection.server) {
            self.hang_up(id);
        }
    }

    /// The server's end of a connection is gone.
    pub(crate) fn hang_up(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.server = false;
        }
        self.send(id, To::Client, Piece::Reset);
    }

    /// The link of a process is cut for this time, in these directions. Cuts add to each other: what
    /// one of them holds back must not be overtaken. Returns false, since a cut takes effect once it
    /// has held something back.
    pub(crate) fn cut(&mut self, process: usize, (up, down): (bool, bool), time: Micros) -> bool {
        let until = self.until(time);
        let link = self.links.entry(process).or_default();
        (link.up_cut, link.down_cut, link.held) = (link.up_cut || up, link.down_cut || down, false);
        link.until = link.until.max(until);
        self.after(until - self.now, move |world| {
            if world.links.get(&process).is_some_and(|link| link.until <= world.now) {
                world.heal(process);
            }
        });
        false
    }

    /// The link of a process is whole again. What it holds arrives, or the connections break.
    pub(crate) fn heal(&mut self, process: usize) {
        self.links.remove(&process);
        for id in self.connections_of(|connection| connection.process == process) {
            let breaks = self.rng.chance(300_000);
            let late = if self.rng.chance(300_000) { self.rng.within(LATE) } else { 0 };
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let [up, down] = std::mem::take(&mut connection.held);
            let is_hurt = !(up.is_empty() && down.is_empty());
            if !up.is_empty() {
                let last = &mut connection.last[To::Server as usize];
                *last = (*last).max(self.now + late);
            }
            for piece in up {
                self.send(id, To::Server, piece);
            }
            // A request may arrive although its answer never does.
            match breaks && is_hurt {
                true => self.send(id, To::Client, Piece::Reset),
                false => down.into_iter().for_each(|piece| self.send(id, To::Client, piece)),
            }
        }
    }

    /// All connections of a process break. Returns whether there was any.
    pub(crate) fn reset(&mut self, process: usize) -> bool {
        let all = self.connections_of(|connection| connection.process == process);
        for id in &all {
            self.send(*id, To::Server, Piece::Reset);
            self.send(*id, To::Client, Piece::Reset);
        }
        !all.is_empty()
    }

    /// The client's ends of all connections of a process are gone. If its machine is gone as well, the
    /// servers are not told.
    pub(crate) fn abandon(&mut self, process: usize, with_machine: bool) {
        for id in self.connections_of(|connection| connection.process == process) {
            self.close(id, !with_machine);
        }
        if with_machine {
            // No machine is left that could send what was held back.
            for id in self.connections_of(|connection| connection.process == process) {
                self.connections.entry(id).and_modify(|one| one.held = Default::default());
            }
        }
    }

    fn close(&mut self, id: u64, tells: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::replace(&mut connection.client, false) {
            return;
        }
        connection.waker = None;
        if !connection.server {
            self.connections.remove(&id);
        } else if tells {
            self.send(id, To::Server, Piece::End);
        }
    }

    fn connections_of(&self, is_one: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let all = self.connections.iter().filter(|(_, connection)| is_one(connection));
        all.map(|(id, _)| *id).collect()
    }

    /// Asks a server for a connection, until the client no longer waits.
    fn ask(&mut self, process: usize, host: usize, opened: oneshot::Sender<io::Result<u64>>) {
        let travel = self.travel();
        self.after(travel, move |world| {
            if opened.is_closed() {
                return;
            }
            if world.is_cut(process, To::Server) || world.is_cut(process, To::Client) {
                return world.after(AGAIN, move |world| world.ask(process, host, opened));
            }
            let refused = world.now < world.hosts[host].down_until;
            let answer = if refused {
                Err(io::ErrorKind::ConnectionRefused.into())
            } else {
                Ok(world.accept(process, host))
            };
            let travel = world.travel();
            world.after(travel, move |world| {
                if let Err(Ok(id)) = opened.send(answer) {
                    world.close(id, true);
                }
            });
        });
    }

    fn accept(&mut self, process: usize, host: usize) -> u64 {
        self.opened += 1;
        let connection = Connection {
            process,
            host,
            client: true,
            server: true,
            received: VecDeque::new(),
            ended: false,
            broken: false,
            waker: None,
            last: [self.now; 2],
            held: Default::default(),
        };
        self.connections.insert(self.opened, connection);
        let id = self.opened;
        self.say(format_args!("process {process} opens connection {id}"));
        id
    }
}

/// Connects a process to the server with this address.
pub(crate) fn connect(process: usize, address: &str) -> Opening {
    let opening = world::with(|world| {
        let host = world.hosts.iter().position(|host| host.address == address)?;
        let (sender, opened) = oneshot::channel();
        world.ask(process, host, sender);
        Some(opened)
    });
    Box::pin(async move {
        let opened = opening.ok_or(io::ErrorKind::HostUnreachable)?.await;
        let id = opened.map_err(|_| io::ErrorKind::ConnectionAborted)??;
        Ok(Box::new(ClientEnd(id)) as Box<dyn Stream>)
    })
}

/// The client's end of a connection.
struct ClientEnd(u64);

impl AsyncRead for ClientEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        world::with(|world| {
            let Some(connection) = world.connections.get_mut(&self.0) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            };
            if !connection.received.is_empty() {
                let length = buffer.remaining().min(connection.received.len());
                let bytes: Vec<u8> = connection.received.drain(..length).collect();
                buffer.put_slice(&bytes);
                return Poll::Ready(Ok(()));
            }
            if connection.broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if connection.ended {
                return Poll::Ready(Ok(()));
            }
            connection.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        world::with(|world| {
            if world.connections.get(&self.0).is_none_or(|one| one.broken || !one.client) {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            world.send(self.0, To::Server, Piece::Data(bytes.to_vec()));
            Poll::Ready(Ok(bytes.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        world::with(|world| world.send(self.0, To::Server, Piece::End));
        Poll::Ready(Ok(()))
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        world::try_with(|world| world.close(self.0, true));
    }
}
