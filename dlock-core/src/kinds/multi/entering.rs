//! Claims that enter several queues at one point of the store's order.

use std::sync::Arc;

use super::give_back;
use crate::{
    AcquireRequest, Acquired, Answer, Certainty, Error, ErrorKind, Guard, LockName, LockOptions,
    engine::{Engine, acquire::Attempt, patience::Wait, tasks::Ticket},
    sync::time::{self, Instant as Timer},
};

/// Claims on their way into several queues.
pub(super) struct Entering {
    pub(super) engine: Arc<Engine>,
    pub(super) sending: Option<Answer<Vec<Acquired>>>,
    /// When its answer is to be there.
    pub(super) answer_by: Option<Timer>,
    pub(super) claims: Vec<(AcquireRequest, LockOptions)>,
    /// Shutdown waits for it.
    pub(super) _ticket: Ticket,
}

impl Entering {
    /// Waits for all of them.
    pub(super) async fn all_granted(
        &mut self,
        wait: Wait,
        name: &LockName,
        gave_up: &mut bool,
    ) -> Result<Option<Guard>, Error> {
        let Some(sending) = &mut self.sending else { return Ok(None) };
        let sending = self.engine.while_it_runs(sending);
        let answers = match self.answer_by {
            None => sending.await,
            Some(answer_by) => match time::timeout_at(answer_by, sending).await {
                Ok(answers) => answers,
                // Dropping this sees it through.
                Err(_) => return Err(self.engine.unanswered(wait, name)),
            },
        };
        self.engine.failure.look_at(&answers);
        self.sending = None;
        let claims = std::mem::take(&mut self.claims);
        // From here on each claim cleans up after itself.
        let attempts: Vec<_> = claims
            .into_iter()
            .map(|(request, options)| Attempt::queued(&self.engine, request, options))
            .collect();
        self.engine.check_open()?;
        let place = |error: Error| {
            error.during("acquire").with_lock(name).with_store(self.engine.backend.store())
        };
        let answers = match answers {
            Ok(answers) if answers.len() == attempts.len() => answers,
            Ok(answers) => {
                return Err(place(Error::new(
                    ErrorKind::Protocol,
                    format!("{} answers to {} claims", answers.len(), attempts.len()),
                )));
            }
            Err(error) => {
                if error.certainty() == Certainty::NotApplied {
                    attempts.into_iter().for_each(Attempt::forget);
                }
                return Err(place(error));
            }
        };
        let busy = answers.contains(&Acquired::Busy);
        let mut guards = Vec::with_capacity(attempts.len());
        let mut waiting = Vec::new();
        for (mut attempt, answer) in attempts.into_iter().zip(answers) {
            match answer {
                Acquired::Granted(grant) => guards.push(attempt.settle(grant)?),
                Acquired::Queued => waiting.push(attempt),
                Acquired::Busy => attempt.forget(),
            }
        }
        if busy {
            give_back(guards, wait).await;
            return Ok(None);
        }
        // They wait side by side: a place in a queue is kept alive only while it is waited for.
        let waits = waiting.iter_mut().map(|attempt| async {
            let taken = attempt.run(wait).await;
            taken.map_err(|error| attempt.explain(error))
        });
        let taken = futures_util::future::try_join_all(waits).await;
        *gave_up = taken.is_err() && waiting.iter().any(Attempt::gave_up);
        guards.extend(taken?.into_iter().flatten());
        guards.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(Some(Guard::many(name, guards)))
    }
}

impl Drop for Entering {
    /// Dropped while sending: the claims are given back once the store has them.
    fn drop(&mut self) {
        let Some(sending) = self.sending.take() else { return };
        let (engine, claims) = (Arc::clone(&self.engine), std::mem::take(&mut self.claims));
        self.engine.tasks.run(async move {
            let _ = sending.await;
            for (request, options) in claims {
                drop(Attempt::queued(&engine, request, options));
            }
        });
    }
}
