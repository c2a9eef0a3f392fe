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
mod messages;
mod server;

pub(crate) use self::server::{held, left};

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};

use self::{
    client::MachineBackend,
    messages::{Mail, Request, mail, process_of},
    server::MachineServer,
};
use crate::{
    faults::{self, Kind, MessageFaults},
    network::{AGAIN, To},
    plan::Plan,
    random::Rng,
    world::{Server, Store, World},
};

/// The index of the host.
const HOST: usize = 0;
/// The chance of a message to stay in a cut link, in a million, for [`AGAIN`].
const HELD: u64 = 700_000;

/// The store of single messages.
#[derive(Debug)]
pub(crate) struct MachineStore;

#[async_trait]
impl Store for MachineStore {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn can_have(&self, kind: Kind) -> bool {
        // It has neither connections nor scripts.
        ![faults::RESET, faults::CACHE_FORGOTTEN].contains(&kind)
    }

    fn draw(&self, plan: &mut Plan, rng: &mut Rng) {
        plan.messages = MessageFaults::draw(rng);
    }

    fn servers(&self, plan: &Plan, _: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        let server = Rc::new(RefCell::new(MachineServer::new(plan.mutant)));
        mail(|mail| *mail = Mail { server: Some(Rc::clone(&server)), ..Mail::default() });
        vec![server]
    }

    async fn connect(&self, process: usize, plan: &Plan) -> Result<DynBackend, Error> {
        let response_timeout = Duration::from_micros(plan.response_timeout);
        Ok(Arc::new(MachineBackend::new(process, response_timeout)))
    }
}

impl World {
    /// Lets a message of a process, or to it, travel.
    fn post(&mut self, process: usize, to: To, deliver: impl Fn(&mut Self) + Clone + 'static) {
        let chances = self.messages.clone();
        let copies = if self.happens(chances.twice, faults::MESSAGE_TWICE) { 2 } else { 1 };
        for _ in 0..copies {
            if self.happens(chances.lost, faults::MESSAGE_LOST) {
                continue;
            }
            let time = match self.happens(chances.late.0, faults::MESSAGE_LATE) {
                true => self.rng.within(chances.late.1.clone()),
                false => self.travel(),
            };
            let deliver = deliver.clone();
            self.after(time, move |world| world.arrive(process, to, deliver));
        }
    }

    /// Returns whether something happens that has this chance in a million.
    pub(crate) fn happens(&mut self, chance: u64, kind: Kind) -> bool {
        let happens = self.rng.chance(chance);
        if happens {
            self.took(kind);
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
        let Some(server) = mail(|mail| mail.server.clone()) else { return };
        let clock = self.hosts[HOST].clock.at(self.now);
        let (response, granted) = server.borrow_mut().serve(request, clock);
        self.say(format_args!("process {process} request {id} {request:?}: {response:?}"));
        for (home, claim) in granted {
            self.post(process_of(home), To::Client, move |_| {
                if let Some(turn) = mail(|mail| mail.turns.get(&claim).cloned()) {
                    turn.notify_one();
                }
            });
        }
        self.post(process, To::Client, move |_| {
            // Without an entry the client no longer waits, or is dead.
            if let Some(waits) = mail(|mail| mail.answers.remove(&id)) {
                let _ = waits.send(response.clone());
            }
        });
    }
}
