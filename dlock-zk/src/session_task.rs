//! The task behind a session.
//!
//! It sends pulses, and heartbeats while there are claims, ends claims that are not renewed, and
//! watches the nodes of held claims.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use dlock_core::{Clock, Error, StoreEventSender, session::StoreSession};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::runtime::Handle;
use zookeeper_client::{EventType, StateWatcher};

use crate::{
    claim::{OwnClaim, OwnWatch},
    config::ZkConfig,
    error::is_unknown,
    own_watch::OwnNode,
    session::{Rest, Session},
};

/// The time between two rounds.
const TICK: Duration = Duration::from_millis(250);
const SHORTEST_TICK: Duration = Duration::from_millis(20);

/// The time until a watch that the servers have refused is set again.
const PAUSE: Duration = Duration::from_secs(2);

impl StoreSession for Session {
    type Claim = OwnClaim;
    type Config = ZkConfig;
    type Remainder = ();

    async fn open(
        config: &ZkConfig,
        events: StoreEventSender,
        runtime: Handle,
        remainder: Option<&()>,
    ) -> Result<Arc<Self>, Error> {
        let opened = Self::connect(config, events, runtime).await;
        if remainder.is_none() {
            return opened;
        }
        let session = opened.inspect_err(|error| {
            tracing::warn!(target: "dlock", %error, "ZooKeeper session failed, will be retried");
        })?;
        tracing::info!(target: "dlock", store = config.store(), "new ZooKeeper session");
        // Started now, so that the first acquire does not wait for it.
        let beginning = Arc::clone(&session);
        session.background(async move { drop(beginning.epoch().await) });
        Ok(session)
    }

    async fn serve(self: Arc<Self>) {
        let states = self.client.state_watcher();
        let weak = Arc::downgrade(&self);
        drop(self);
        serve(&weak, states).await;
    }
}

/// Work that is under way.
type Job = Pin<Box<dyn Future<Output = Done> + Send>>;

enum Done {
    /// The node of a held claim is watched, or could not be.
    Asked(Arc<OwnClaim>, OwnNode),
    /// The node has changed.
    Changed(Arc<OwnClaim>, EventType),
    Heartbeat {
        answered: bool,
    },
    Pulse,
}

/// Serves a session until it has ended, or until there is no reference to it any more.
async fn serve(weak: &Weak<Session>, mut states: StateWatcher) {
    let mut jobs = FuturesUnordered::<Job>::new();
    let (mut beating, mut pulsing) = (false, false);
    // The time since which no heartbeat was answered.
    let mut silent = None;
    // One timer for all rounds. A new timer in each pass would never fire while other events keep
    // arriving.
    let mut look = std::pin::pin!(tokio::time::sleep(TICK));
    while !states.peek_state().is_terminated() {
        tokio::select! {
            state = states.changed() => tracing::debug!(target: "dlock", ?state, "ZooKeeper session state changed"),
            () = &mut look => {
                let Some(session) = weak.upgrade() else { return };
                if session.is_over() {
                    // It is replaced, since claims could not be removed from it.
                    return;
                }
                let now = Clock::Boot.now();
                let (lapsed, next) = session.lapse(now);
                end(&session, lapsed);
                for claim in session.take_matured(now) {
                    if claim.start_watch() {
                        jobs.push(Box::pin(ask(weak.clone(), claim)));
                    }
                }
                // Any other answered write counts as well.
                let heard = silent.is_some_and(|since| session.beat() >= since);
                if heard || (next.is_none() && !beating) {
                    silent = None;
                }
                if silent.is_some_and(|since| now.since(since) > session.timeout * 2) {
                    // A working driver would have ended the session by now.
                    tracing::warn!(target: "dlock", "ZooKeeper driver task ended");
                    return;
                }
                if next.is_some() && !beating && now.since(session.beat()) >= session.timeout / 6 {
                    beating = true;
                    silent.get_or_insert(now);
                    jobs.push(Box::pin(heartbeat(Arc::clone(&session))));
                }
                if !pulsing && now.since(session.proof.last_pulse()) >= session.timeout / 8 {
                    pulsing = true;
                    jobs.push(Box::pin(pulse(Arc::clone(&session))));
                }
                // No claims: the next round can wait for the next pulse, and there are no
                // heartbeats.
                let timeout = session.timeout;
                if next.is_none() && !beating && let Some(rest) = session.rest() {
                    drop(session);
                    let rested = rest_until_woken(&rest, timeout / 10, &mut states, &mut jobs);
                    pulsing &= !rested.await;
                }
                let longest = TICK.min(timeout / 16);
                let tick = next.unwrap_or(longest).clamp(SHORTEST_TICK, longest);
                look.as_mut().reset(tokio::time::Instant::now() + tick);
            }
            Some(done) = jobs.next(), if !jobs.is_empty() => match done {
                // Two futures: there may be 100,000 waiting ones, and the request needs a large
                // one.
                Done::Asked(claim, OwnNode::Watched(watch)) => {
                    jobs.push(Box::pin(changed(watch, claim)));
                }
                // The release of a claim ends its watch too, since its node is deleted.
                Done::Changed(claim, event) if event != EventType::Session => {
                    jobs.push(Box::pin(ask(weak.clone(), claim)));
                }
                Done::Asked(claim, OwnNode::Refused) => {
                    jobs.push(Box::pin(ask_later(weak.clone(), claim)));
                }
                Done::Asked(claim, OwnNode::Gone) => {
                    if let Some(session) = weak.upgrade() {
                        session.lose(&claim);
                    }
                }
                Done::Heartbeat { answered } => {
                    beating = false;
                    if answered {
                        silent = None;
                    }
                }
                Done::Pulse => pulsing = false,
                Done::Asked(_, OwnNode::Over) | Done::Changed(..) => {}
            },
        }
    }
}

/// Sets a watch on the node of a held claim.
async fn ask(session: Weak<Session>, claim: Arc<OwnClaim>) -> Done {
    let own = match session.upgrade() {
        Some(session) => session.watch_own(&claim).await,
        None => OwnNode::Over,
    };
    Done::Asked(claim, own)
}

/// It must not keep the session alive during the pause.
async fn ask_later(session: Weak<Session>, claim: Arc<OwnClaim>) -> Done {
    tokio::time::sleep(PAUSE).await;
    ask(session, claim).await
}

/// Waits until that node changes. It must not keep the session alive.
async fn changed(watch: OwnWatch, claim: Arc<OwnClaim>) -> Done {
    let event = watch.event.await;
    // Without the driver, the session is over.
    Done::Changed(claim, event.map_or(EventType::Session, |event| event.event_type))
}

/// Sleeps until there is a claim, the session has ended, or the next pulse is due. Returns whether
/// a pulse has ended meanwhile.
async fn rest_until_woken(
    rest: &Rest,
    longest: Duration,
    states: &mut StateWatcher,
    jobs: &mut FuturesUnordered<Job>,
) -> bool {
    let mut sleep = std::pin::pin!(tokio::time::sleep(longest));
    let mut pulsed = false;
    loop {
        tokio::select! {
            () = rest.until_woken() => return pulsed,
            () = &mut sleep => return pulsed,
            _ = states.changed() => return pulsed,
            // Jobs may have a reference to the session, and must not keep it alive.
            Some(done) = jobs.next(), if !jobs.is_empty() => {
                pulsed |= matches!(done, Done::Pulse);
            }
        }
    }
}

async fn pulse(session: Arc<Session>) -> Done {
    session.pulse().await;
    Done::Pulse
}

async fn heartbeat(session: Arc<Session>) -> Done {
    let Err(error) = session.heartbeat().await else { return Done::Heartbeat { answered: true } };
    tracing::debug!(target: "dlock", %error, "ZooKeeper heartbeat not answered");
    // It was under way when the connection was lost. The next heartbeat waits for the new
    // connection.
    tokio::time::sleep(session.timeout / 20).await;
    Done::Heartbeat { answered: !is_unknown(&error) }
}

/// Ends claims that were not renewed.
fn end(session: &Arc<Session>, lapsed: Vec<Arc<OwnClaim>>) {
    for claim in lapsed {
        tracing::debug!(target: "dlock", claim = %claim.claim(), lock.name = %claim.name(), "lease expired");
        let ending = Arc::clone(session);
        session.background(async move {
            // If this fails, the session repeats it.
            let _ = ending.clear(&claim).await;
        });
    }
}
