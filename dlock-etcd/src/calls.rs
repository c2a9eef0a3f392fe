//! Requests of a session, on its connection to one member.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dlock_core::{Certainty, Clock, Error, Instant, session::Pause};
use tokio::sync::watch;

use crate::{
    client::{Failure, FailureKind, Header, Unary},
    error::no_answer,
    link::Link,
    session::Session,
};

impl Session {
    /// Replaces the connection. `None` makes all calls fail that use the old one.
    pub(crate) fn set_link(&self, link: Option<Arc<Link>>) {
        self.link.send_replace(link);
    }

    /// Returns the connection, or waits for the next one.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, Failure> {
        if let Some(link) = self.link.borrow().clone() {
            return Ok(link);
        }
        let mut links = self.link.subscribe();
        let link = async {
            tokio::select! {
                link = links.wait_for(Option::is_some) => link.ok().and_then(|link| link.clone()),
                () = self.until_over() => None,
            }
        };
        let link = tokio::time::timeout(self.patience(), link).await;
        link.ok().flatten().ok_or_else(|| {
            let why = "no member can be reached, or the session has ended";
            Failure::new(FailureKind::Disconnected, Certainty::NotApplied, why)
        })
    }

    /// Waits for an answer on the current connection, until that is given up.
    pub(crate) async fn on_link<T>(
        &self,
        call: impl AsyncFnOnce(&Link) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let link = self.link().await?;
        tokio::select! {
            answer = call(&link) => answer,
            () = replaced(self.link.subscribe(), link.number) => {
                let why = "the connection to a member that does not answer was given up";
                Err(Failure::new(FailureKind::Disconnected, Certainty::Unknown, why))
            }
        }
    }

    /// Sends a request that is no vote.
    pub(crate) async fn ask<R: Unary>(&self, request: R) -> Result<(Header, R::Response), Failure> {
        let deadline = tokio::time::Instant::now() + self.patience();
        let answer = self.on_link(async |link| link.client.call(request, deadline).await).await;
        self.note(answer)
    }

    /// Sends a request that a majority commits before it is answered. If it has a lease, that is the
    /// current one of the session or an earlier one. If that has ended, the marker shows whether the
    /// session has ended with it.
    pub(crate) async fn voted<R: Unary>(
        &self,
        request: R,
    ) -> Result<(Header, R::Response), Failure> {
        self.voted_by(request, self.patience(), false).await
    }

    /// Like [`voted`](Self::voted), with another limit of time. `is_first`: it does not wait for
    /// other requests if the server allows few at a time.
    pub(crate) async fn voted_by<R: Unary>(
        &self,
        request: R,
        within: Duration,
        is_first: bool,
    ) -> Result<(Header, R::Response), Failure> {
        let deadline = tokio::time::Instant::now() + within;
        let answer = self.on_link(async |link| {
            let sent = Clock::Boot.now();
            let answer = match is_first {
                true => link.client.call_first(request, deadline).await?,
                false => link.client.call(request, deadline).await?,
            };
            self.count_vote(link.number, answer.0.raft_term, sent);
            Ok(answer)
        });
        let answer = self.note(answer.await);
        if answer.as_ref().is_err_and(|failure| failure.kind() == FailureKind::LeaseNotFound) {
            // If this fails, the next request or heartbeat finds out.
            let _ = Box::pin(self.check_marker()).await;
        }
        answer
    }

    /// Records a vote. A beat counts only if the session is not over by then.
    fn count_vote(&self, link: u64, term: u64, sent: Instant) {
        let mut proof = self.proof.lock();
        let now = Clock::Boot.now();
        if let Some(beat) = proof.vote(link, term, sent, now)
            && now < self.local_deadline()
        {
            self.heard(beat);
        }
    }

    /// Notes what an answer shows beside its content.
    fn note<T>(&self, answer: Result<(Header, T), Failure>) -> Result<(Header, T), Failure> {
        match answer {
            Ok((header, answer)) => {
                self.seen.fetch_max(header.revision, Ordering::SeqCst);
                Ok((header, answer))
            }
            // The same login was accepted when the session began.
            Err(failure) if failure.kind() == FailureKind::WrongUser => {
                Err(failure.with_kind(FailureKind::Token))
            }
            Err(failure) => {
                if matches!(failure.kind(), FailureKind::Disconnected | FailureKind::Unclear) {
                    // The member may have been stopped or removed. The next heartbeat finds out.
                    self.is_member_suspect.store(true, Ordering::SeqCst);
                }
                Err(failure)
            }
        }
    }

    /// Returns the largest revision that an answer has shown, from any member.
    pub(crate) fn seen(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Sends a request until the outcome is certain, or the session has ended. An error that is not
    /// known is no outcome: another member may answer. Returns the answer, and whether the outcome of
    /// an earlier sending was unknown.
    pub(crate) async fn insist<R: Unary>(
        &self,
        request: R,
    ) -> (Result<(Header, R::Response), Failure>, bool) {
        self.insist_by(|| self.voted(request.clone())).await
    }

    /// Like [`insist`](Self::insist), with this way of sending it.
    pub(crate) async fn insist_by<T, F>(
        &self,
        mut send: impl FnMut() -> F,
    ) -> (Result<T, Failure>, bool)
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (mut unsure, mut pause) = (false, Pause::new());
        loop {
            match send().await {
                Err(failure) if may_pass(&failure) && !self.is_over() => {
                    unsure |= failure.certainty() == Certainty::Unknown;
                    pause.wait().await;
                }
                answer => return (answer, unsure),
            }
        }
    }

    /// Sends a request that changes nothing until it is answered, for as long as a caller waits.
    pub(crate) async fn insist_on<R: Unary>(
        &self,
        request: R,
    ) -> Result<(Header, R::Response), Error> {
        let mut pause = Pause::new();
        let answer = async {
            loop {
                match self.ask(request.clone()).await {
                    Err(failure) if is_passing(&failure) && !self.is_over() => pause.wait().await,
                    answer => return answer,
                }
            }
        };
        match tokio::time::timeout(self.patience(), answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(no_answer()),
        }
    }
}

/// Waits until the session has given up the connection with this number.
pub(crate) async fn replaced(mut links: watch::Receiver<Option<Arc<Link>>>, number: u64) {
    let other = |now: &Option<Arc<Link>>| now.as_ref().is_none_or(|now| now.number != number);
    // An error means that the session was dropped.
    let _ = links.wait_for(other).await;
}

fn may_pass(failure: &Failure) -> bool {
    is_passing(failure) || failure.kind() == FailureKind::Unclear
}

/// Returns whether a retry within the same session may help.
pub(crate) fn is_passing(failure: &Failure) -> bool {
    use FailureKind::{Disconnected, Late, Learner, NoLeader, Overloaded, Token};
    matches!(failure.kind(), Disconnected | Late | Learner | NoLeader | Overloaded | Token)
}
