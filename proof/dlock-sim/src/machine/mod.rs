//! A store that is the lock machine of the core, reached by single messages.
//!
//! There are no connections. The network loses messages, delays them, delivers them twice, and lets
//! them overtake each other. So a client sends each request again until it is answered, and any copy
//! may arrive late:
//!
//! - An acquire has a deadline by the server's clock. After it, the server refuses the acquire.
//! - A release bars its claim until the deadline of the last acquire of that claim.
//! - The server bars a claim that it refuses, and remembers which claims were released. So all copies
//!   of a request get one answer.
//! - A new epoch begins if the server loses its data, and with them the bars, or if its clock steps
//!   back before the end of a bar. An acquire names its epoch, and the server refuses earlier ones.
//!
//! A renewal needs none of these, since it has no effect on a claim that has ended. The server sends
//! a notification to the client whose claim it grants later.

mod client;
pub(crate) mod messages;
pub(crate) mod server;

use std::sync::Arc;

pub(crate) use self::client::MachineBackend;
use self::messages::{Request, process_of};
use crate::{
    faults::Kind,
    network::{AGAIN, To},
    world::{Server, World},
};

/// The index of the host.
const HOST: usize = 0;
/// The chance of a message to stay in a cut link, in a million, for [`AGAIN`].
const HELD: u64 = 700_000;

impl World {
    /// Lets a message of a process, or to it, travel.
    fn post(&mut self, process: usize, to: To, deliver: impl Fn(&mut Self) + Clone + 'static) {
        let faults = self.mail.faults.clone();
        let copies = if self.happens(faults.twice, Kind::MessageTwice) { 2 } else { 1 };
        for _ in 0..copies {
            if self.happens(faults.lost, Kind::MessageLost) {
                continue;
            }
            let time = match self.happens(faults.late.0, Kind::MessageLate) {
                true => self.rng.within(faults.late.1.clone()),
                false => self.travel(),
            };
            let deliver = deliver.clone();
            self.after(time, move |world| world.arrive(process, to, deliver));
        }
    }

    fn happens(&mut self, chance: u64, kind: Kind) -> bool {
        let happens = self.rng.chance(chance);
        if happens {
            self.effects.took(kind);
        }
        happens
    }

    /// Delivers a message. A cut link holds it or loses it.
    fn arrive(&mut self, process: usize, to: To, deliver: impl FnOnce(&mut Self) + 'static) {
        if !self.meets_cut(process, to) {
            deliver(self);
        } else if self.rng.chance(HELD) {
            self.after(AGAIN, move |world| world.arrive(process, to, deliver));
        }
    }

    fn request(&mut self, process: usize, id: u64, request: Arc<Request>) {
        self.post(process, To::Server, move |world| {
            let request = Arc::clone(&request);
            // No process is there that could refuse it.
            if world.now >= world.hosts[HOST].down_until {
                world.when_not_busy(HOST, move |world| world.serve(process, id, &request));
            }
        });
    }

    fn serve(&mut self, process: usize, id: u64, request: &Request) {
        let now = self.now;
        let host = &mut self.hosts[HOST];
        let Server::Machine(server) = &mut host.server else { return };
        let (response, granted) = server.serve(request, host.clock.at(now));
        self.say(format_args!("process {process} request {id} {request:?}: {response:?}"));
        for (home, claim) in granted {
            self.post(process_of(home), To::Client, move |world| {
                if let Some(turn) = world.mail.turns.get(&claim) {
                    turn.notify_one();
                }
            });
        }
        self.post(process, To::Client, move |world| {
            // Without an entry the client no longer waits, or is dead.
            if let Some(waits) = world.mail.answers.remove(&id) {
                let _ = waits.send(response.clone());
            }
        });
    }
}
