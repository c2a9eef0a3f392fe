//! Faults of the network between the holders and a server.

use std::time::Duration;

use dlock_testkit::Stop;
use dlock_testlab::{Flow, Proxy};
use tokio::time::sleep;

use super::{Effect, Fault, some};

/// The network in front of one server.
pub(in crate::command) struct Network {
    proxy: Proxy,
}

impl Network {
    /// Returns the network over this proxy.
    pub(super) fn over(proxy: Proxy) -> Self {
        Self { proxy }
    }

    /// Returns the address that replaces the server's address in a URL.
    pub(super) fn address(&self) -> String {
        self.proxy.address()
    }

    /// Injects one fault into the network of a server that has clients, which is chosen at random,
    /// and repairs the network.
    pub(super) async fn inject_one(networks: &[Self], fault: Fault) -> Result<Effect, Stop> {
        let first = rand::random_range(0..networks.len());
        let mut effect = Effect::Missed("there is no way to a server".to_owned());
        for network in networks[first..].iter().chain(&networks[..first]) {
            effect = network.inject(fault).await?;
            if effect == Effect::Proven {
                break;
            }
        }
        Ok(effect)
    }

    /// Injects one fault, and repairs the network.
    pub(super) async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        let proxy = &self.proxy;
        let before = Seen::at(proxy);
        match fault {
            Fault::ConnectionsCut => {
                if rand::random() {
                    proxy.cut();
                } else {
                    proxy.hang_up();
                }
                sleep(some(10, 200)).await;
            }
            Fault::HalfOpen => {
                proxy.half_open();
                sleep(some(100, 1500)).await;
                proxy.cut();
            }
            Fault::RepliesDropped => {
                proxy.replies(Flow::Drop);
                sleep(some(20, 400)).await;
                proxy.cut();
            }
            Fault::RepliesDelayed => {
                proxy.replies(Flow::Delay(some(5, 100)));
                sleep(some(300, 1000)).await;
            }
            Fault::PushesLost => {
                proxy.lose_pushes();
                sleep(some(500, 1500)).await;
                proxy.pass_pushes();
            }
            _ => return Ok(Effect::Missed(format!("{fault}: not of the network"))),
        }
        // Connections that were cut close a moment later, and must not get data afterwards.
        sleep(Duration::from_millis(5)).await;
        let after = Seen::at(proxy);
        proxy.pass().await?;
        Ok(after.since(before).shows(fault))
    }
}

/// The counters of a proxy.
#[derive(Clone, Copy)]
struct Seen {
    cut: u64,
    held: u64,
    dropped: u64,
    delayed: u64,
    pushes: u64,
}

impl Seen {
    fn at(proxy: &Proxy) -> Self {
        Self {
            cut: proxy.cuts(),
            held: proxy.held_bytes(),
            dropped: proxy.dropped_bytes(),
            delayed: proxy.delayed_bytes(),
            pushes: proxy.lost_pushes(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            cut: self.cut - before.cut,
            held: self.held - before.held,
            dropped: self.dropped - before.dropped,
            delayed: self.delayed - before.delayed,
            pushes: self.pushes - before.pushes,
        }
    }

    fn shows(self, fault: Fault) -> Effect {
        let (count, what) = match fault {
            Fault::ConnectionsCut => (self.cut, "connection was cut"),
            Fault::HalfOpen => (self.held, "byte was held back"),
            Fault::RepliesDropped => (self.dropped, "byte was dropped"),
            Fault::RepliesDelayed => (self.delayed, "byte was delayed"),
            _ => (self.pushes, "notification was lost"),
        };
        match count {
            0 => Effect::Missed(format!("no {what}")),
            _ => Effect::Proven,
        }
    }
}
