//! Faults of the network between the holders and a server.

use std::time::Duration;

use dlock_testkit::Stop;
use dlock_testlab::{Door, Flow, Proxy};
use tokio::time::sleep;

use super::{Effect, Fault, Outages, some};

/// The network in front of one server.
#[derive(Debug)]
pub(super) struct Network {
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
    pub(super) async fn inject_one(
        networks: &[Self],
        fault: Fault,
        outages: &Outages,
    ) -> Result<Effect, Stop> {
        let first = rand::random_range(0..networks.len());
        let mut effect = Effect::Missed("there is no way to a server".to_owned());
        for network in networks[first..].iter().chain(&networks[..first]) {
            effect = network.inject(fault, outages).await?;
            if effect == Effect::Proven {
                break;
            }
        }
        Ok(effect)
    }

    /// Injects one fault, and repairs the network.
    pub(super) async fn inject(&self, fault: Fault, outages: &Outages) -> Result<Effect, Stop> {
        let proxy = &self.proxy;
        let (count, what): (fn(&Proxy) -> u64, _) = match fault {
            Fault::ConnectionsCut => (Proxy::cuts, "connection was cut"),
            Fault::HalfOpen | Fault::RequestsHeld => (Proxy::held_bytes, "byte was held back"),
            Fault::RepliesDropped => (Proxy::dropped_bytes, "byte was dropped"),
            Fault::RepliesDelayed => (Proxy::delayed_bytes, "byte was delayed"),
            Fault::PushesLost => (Proxy::lost_pushes, "notification was lost"),
            _ => return Ok(Effect::Missed(format!("{fault}: not of the network"))),
        };
        let before = count(proxy);
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
                sleep(outages.next()).await;
                self.cut_some();
            }
            Fault::RequestsHeld => {
                proxy.requests(Flow::Hold);
                sleep(some(20, 400)).await;
                self.cut_some();
            }
            Fault::RepliesDropped => {
                proxy.replies(Flow::Drop);
                sleep(some(20, 400)).await;
                // A connection that comes now would miss the beginning of the server's answers.
                proxy.door(Door::Closed).await?;
                proxy.cut();
            }
            Fault::RepliesDelayed => {
                proxy.replies(Flow::Delay(some(5, 200)));
                sleep(some(100, 800)).await;
            }
            _ => {
                proxy.lose_pushes();
                sleep(some(300, 1200)).await;
            }
        }
        // Connections that were cut close a moment later, and must not get data afterwards.
        sleep(Duration::from_millis(5)).await;
        let after = count(proxy);
        proxy.pass().await?;
        Ok(Effect::seen(after > before, &format!("no {what}")))
    }

    /// Loses what was held back, or lets it arrive late.
    fn cut_some(&self) {
        if rand::random() {
            self.proxy.cut();
        }
    }
}
