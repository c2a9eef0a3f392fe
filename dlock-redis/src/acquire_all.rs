//! Claims on several names of one shard with one script.
//!
//! The claims enter all queues at one point in the server's order. So two clients that want the
//! same names have the same order in all queues, and can't deadlock. This needs the same steps in
//! every client: whether the names are taken together depends only on the topology, which is that
//! of the servers, and not on options such as `dlock.durability`.
//!
//! The order must also be kept. If a client can't be reached, its claims are skipped, and a later
//! claim may hold one lock while the earlier one gets another. So the channels of these claims have
//! a mark ([`STRICT`]), and the claims are granted in their turn even if no message is received.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Acquired, Certainty, Error, Note, SendFlag};
use redis::Value;

use crate::{durable::won, error::unreadable, keys::Keys, reply::statuses, store::Store};

/// The mark before the channel of a claim that is never skipped: see `notify` in `lock.lua`.
const STRICT: char = '!';

impl Store {
    /// Returns whether all these names are in one shard, so that one script can take them.
    pub(crate) fn can_take_together(&self, requests: &[AcquireRequest]) -> bool {
        let mut shards = requests.iter().map(|request| self.shard(&request.name));
        let first = shards.next();
        shards.all(|shard| Some(shard) == first)
    }

    pub(crate) async fn acquire_all(
        self: &Arc<Self>,
        requests: &[AcquireRequest],
        flag: &SendFlag,
    ) -> Result<Vec<Acquired>, Error> {
        for request in requests {
            self.session.check_lease(request.lease)?;
        }
        let mut call = self.session.scripts.acquire_all.on(Keys::COUNT * requests.len());
        for request in requests {
            call = call.keys(&Keys::of(&request.name));
        }
        let notes = requests.iter().map(|request| request.note.as_ref().map(Note::as_str));
        let notes: Vec<_> = notes.collect();
        let noted = notes.iter().any(Option::is_some);
        // If the request fails or is given up, no message is expected for the claims any more.
        let expected = self.waiters.until_answered(requests);
        for (request, note) in requests.iter().zip(&notes) {
            let channel = self.channel_for(request, flag).await;
            let channel = channel.map(|channel| format!("{STRICT}{channel}"));
            let is_unknown = self.session.unanswered.has(request.claim);
            call = call.request(request, channel.as_deref(), is_unknown);
            if noted {
                call = call.arg(note.as_deref().unwrap_or_default());
            }
        }
        let call = call.acquiring(&self.session.unanswered, requests).unsent(flag);
        let answer = self.run_durably(&call, won).await;
        let answers = match answer.and_then(|value| statuses(&value)) {
            Ok(answers) if answers.len() == requests.len() => answers,
            Ok(_) => return Err(unreadable("a script", &Value::Nil)),
            // A script that fails half-way has applied its first half: Redis does not roll back. The
            // core cancels the claims.
            Err(error) => return Err(error.with_certainty(Certainty::Unknown)),
        };
        expected.answered();
        let settled: Result<Vec<_>, Error> = requests
            .iter()
            .zip(answers)
            .map(|(request, answer)| self.settle(request, call.sending().began(), answer))
            .collect();
        // After a conflict on one name the other claims are in their queues. With this certainty
        // the core cancels them.
        settled.map_err(|error| error.with_certainty(Certainty::Unknown))
    }
}
