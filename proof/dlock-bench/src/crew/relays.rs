//! The network of a team: a relay for each process, as if each ran on a machine of its own.

use std::time::Duration;

use dlock_testlab::{Flow, Proxy, Stop};
use tokio::runtime::{Builder, Runtime};

use crate::{Failure, store::Server};

/// The relays of all processes of a team.
pub(crate) struct Relays {
    server: String,
    proxies: Vec<Proxy>,
    /// Runs the relays. Dropped last.
    _runtime: Runtime,
}

impl Relays {
    /// Starts `size` relays to a server, each of which delays all bytes in both directions.
    pub(crate) fn start(server: &Server, size: usize, delay: Duration) -> Result<Self, Failure> {
        let relays = Self::to(&server.address().ok_or("it has no network")?, size)?;
        for proxy in relays.proxies.iter().filter(|_| !delay.is_zero()) {
            proxy.requests(Flow::Delay(delay));
            proxy.replies(Flow::Delay(delay));
        }
        Ok(relays)
    }

    fn to(server: &str, size: usize) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let proxies = (0..size).map(|_| runtime.block_on(Proxy::start(server)));
        let proxies = proxies.collect::<Result<_, _>>();
        let proxies = proxies.map_err(|stop: Stop| format!("no relay: {stop:?}"))?;
        Ok(Self { server: server.to_owned(), proxies, _runtime: runtime })
    }

    /// Returns the URL over the relay of a process.
    pub(crate) fn route(&self, url: &str, place: usize) -> String {
        let proxy = self.proxies.get(place).map_or(self.server.clone(), Proxy::address);
        url.replacen(&self.server, &proxy, 1)
    }

    /// Cuts the network of a process: it and the server get nothing more from each other, and no
    /// connection is closed.
    pub(crate) fn cut(&self, place: usize) {
        if let Some(proxy) = self.proxies.get(place) {
            proxy.half_open();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_process_reaches_the_server_until_it_is_cut_off() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let relays = Relays::to(&server.local_addr().unwrap().to_string(), 2).unwrap();
        let address = |place| relays.route(&format!("redis://{}", relays.server), place);
        assert_ne!(address(0), address(1));
        let connect = |place| {
            let client = TcpStream::connect(address(place).trim_start_matches("redis://"));
            (client.unwrap(), server.accept().unwrap().0)
        };
        let arrives = |from: &mut TcpStream, to: &mut TcpStream| {
            from.write_all(b"x").unwrap();
            to.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            loop {
                match to.read(&mut [0]) {
                    Ok(length) => return length == 1,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
        };
        let ((mut cut, mut its_end), (mut other, mut other_end)) = (connect(0), connect(1));
        relays.cut(0);
        assert!(!arrives(&mut cut, &mut its_end) && !arrives(&mut its_end, &mut cut));
        other_end.set_read_timeout(None).unwrap();
        other.write_all(b"x").unwrap();
        assert_eq!(other_end.read(&mut [0]).unwrap(), 1);
    }
}
