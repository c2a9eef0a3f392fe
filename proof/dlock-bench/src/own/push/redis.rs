//! The baseline of a hand-off: a message in a ring of processes. Each step is a bare `PUBLISH` to a
//! process, which listens on the connection that it also publishes on.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value, aio::MultiplexedConnection};
use tokio::sync::Notify;

use super::{Trip, pause};
use crate::{Failure, clock, own::baseline::redis as baseline};

/// The time to wait for messages that are still pending after a run, so that none is left for the
/// next one.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A place in the ring.
pub(crate) struct RedisRing {
    connection: MultiplexedConnection,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    took: Mutex<Vec<Duration>>,
    arrived: Notify,
}

impl RedisRing {
    /// Starts to listen at this place.
    pub(crate) async fn join(url: &str, place: &str) -> Result<Self, Failure> {
        let inbox = Arc::new(Inbox::default());
        let to = Arc::clone(&inbox);
        let config = baseline::config().set_push_sender(move |push: PushInfo| {
            to.receive(&push);
            Ok::<(), ()>(())
        });
        let client = baseline::client(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(channel(place)).await?;
        Ok(Self { connection, inbox })
    }

    /// Forwards the message until the time is over. Returns how long it took to this place each time.
    pub(crate) async fn go(
        &mut self,
        Trip { first, next, hold, from, until }: Trip<'_>,
    ) -> Result<Vec<Duration>, Failure> {
        let end = until + u64::try_from(STRAGGLERS.as_nanos())?;
        if first {
            clock::sleep_until(from).await;
            self.send(next).await?;
        }
        loop {
            tokio::select! {
                () = self.inbox.arrived.notified() => {}
                () = clock::sleep_until(end) => break,
            }
            if clock::now() < until {
                pause(hold).await;
                self.send(next).await?;
            }
        }
        Ok(std::mem::take(&mut *self.inbox.took.lock()))
    }

    async fn send(&mut self, next: &str) -> Result<(), Failure> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel(next)).arg(clock::now());
        match publish.query_async(&mut self.connection).await? {
            1 => Ok(()),
            listeners => Err(format!("{listeners} instead of 1 listen at place {next}").into()),
        }
    }
}

impl Inbox {
    fn receive(&self, push: &PushInfo) {
        let arrived = clock::now();
        if let (PushKind::Message, [_, Value::BulkString(sent)]) = (&push.kind, &push.data[..])
            && let Some(sent) = str::from_utf8(sent).ok().and_then(|sent| sent.parse().ok())
        {
            self.took.lock().push(clock::between(sent, arrived));
            self.arrived.notify_one();
        }
    }
}

fn channel(place: &str) -> String {
    format!("ring:{place}")
}
