//! Claims of a multi-lock that enter all queues at once.

use std::{sync::Arc, time::Duration};

use crate::{
    AcquireRequest, Acquired, Answer, Certainty, Error, ErrorKind, Guard, LockName, LockOptions,
    acquire::Attempt,
    engine::{Engine, hold_ref::HoldRef},
    support::{retry::Wait, tasks::Ticket},
    sync::time::{self, Instant as Timer},
};

/// Claims that are being sent to several queues.
pub(super) struct MultiAcquire {
    engine: Arc<Engine>,
    sending: Option<Answer<Vec<Acquired>>>,
    /// The time limit for the answer.
    answer_by: Option<Timer>,
    claims: Vec<(AcquireRequest, LockOptions)>,
    /// Shutdown waits for it.
    _ticket: Ticket,
}

impl MultiAcquire {
    pub(super) fn new(
        engine: &Arc<Engine>,
        claims: Vec<(AcquireRequest, LockOptions)>,
        sending: Answer<Vec<Acquired>>,
        answer_by: Option<Timer>,
    ) -> Self {
        Self {
            engine: Arc::clone(engine),
            sending: Some(sending),
            answer_by,
            claims,
            _ticket: engine.tasks.ticket(),
        }
    }

    pub(super) async fn all_granted(
        &mut self,
        wait: Wait,
        name: &LockName,
        gave_up: &mut bool,
    ) -> Result<Option<Guard>, Error> {
        let Some(sending) = &mut self.sending else { return Ok(None) };
        let sending = self.engine.while_it_runs(sending);
        // If this future is dropped here, `Drop` below waits for the answer in the background.
        let answers = self.engine.answered(self.answer_by, wait, name, sending).await?;
        self.engine.failure.record(&answers, None);
        self.sending = None;
        let claims = std::mem::take(&mut self.claims);
        // From here on each claim cleans up its own state.
        let attempts: Vec<_> = claims
            .into_iter()
            .map(|(request, options)| Attempt::queued(&self.engine, request, options))
            .collect();
        self.engine.check_open()?;
        let in_context = |error: Error| {
            error.during("acquire").with_lock(name).with_store(self.engine.backend.store())
        };
        let answers = match answers {
            Ok(answers) if answers.len() == attempts.len() => answers,
            Ok(answers) => {
                return Err(in_context(Error::new(
                    ErrorKind::Protocol,
                    format!(
                        "the store sent {} answers to {} claims: report this to the authors of the \
                         backend",
                        answers.len(),
                        attempts.len()
                    ),
                )));
            }
            Err(error) => {
                if error.certainty() == Certainty::NotApplied {
                    attempts.into_iter().for_each(Attempt::forget);
                }
                return Err(in_context(error));
            }
        };
        let busy = answers.contains(&Acquired::Busy);
        let mut parts = Vec::with_capacity(attempts.len());
        let mut waiting = Vec::new();
        for (mut attempt, answer) in attempts.into_iter().zip(answers) {
            match answer {
                Acquired::Granted(grant) => parts.push(attempt.settle(grant)),
                Acquired::Queued => waiting.push(attempt),
                Acquired::Busy => attempt.forget(),
            }
        }
        if busy {
            release_parts(parts, wait).await;
            return Ok(None);
        }
        // The claims wait concurrently, since a place in a queue expires if its claim does not
        // wait.
        let waits = waiting.iter_mut().map(|attempt| async {
            let taken = attempt.run(wait).await;
            taken.map_err(|error| attempt.explain(error))
        });
        let taken = futures_util::future::try_join_all(waits).await;
        *gave_up = taken.is_err() && waiting.iter().any(Attempt::gave_up);
        parts.extend(taken?.into_iter().flatten());
        Ok(Some(Guard::many(parts)))
    }
}

impl Drop for MultiAcquire {
    /// If it is dropped while the request is being sent, the claims are cancelled after the answer.
    /// A cancellation that overtook the request would leave the claims in their queues.
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

/// Releases the parts of a failed attempt before the caller gets the result, so that a try leaves
/// no trace. Slow releases continue in the background.
pub(super) async fn release_parts(parts: Vec<HoldRef>, wait: Wait) {
    let all = futures_util::future::join_all(parts.into_iter().map(HoldRef::release));
    let soon = Timer::now() + Duration::from_secs(1);
    let until = wait.deadline().map_or(soon, |deadline| deadline.min(soon));
    // The lease frees a lock that can't be released.
    let _ = time::timeout_at(until, all).await;
}
