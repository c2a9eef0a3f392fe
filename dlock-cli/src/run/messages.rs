//! The messages of `dlock run`, which it prints besides its command's output.

use std::{convert::Infallible, time::Duration};

use dlock::{
    Error, FencingToken, Guard, LockName, Locks,
    guard::{Ended, GuardState},
};
use serde_json::{Value, json};

use crate::{
    failure::{complain, complain_json},
    output::{LockView, millis, short},
    store,
};

/// The wait for a lock after which the first message is printed.
const FIRST: Duration = Duration::from_secs(1);

/// The pause until the next message about the holder.
const NEXT: Duration = Duration::from_secs(30);

/// The pause between two reads of the store, and the time for its answer.
const POLL: Duration = Duration::from_secs(2);

/// Prints messages on stderr.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    pub(super) json: bool,
    pub(super) verbose: bool,
}

impl Messages {
    /// During the wait, prints the holder of the lock repeatedly, and that the store is unreachable
    /// or answers again. Never returns.
    pub(super) async fn wait(self, locks: &Locks, name: &LockName) -> Infallible {
        if !self.verbose {
            return std::future::pending().await;
        }
        let (mut reached, mut until_next) = (true, FIRST);
        tokio::time::sleep(FIRST).await;
        loop {
            // An inspection is retried for longer than this if the store is unreachable.
            let answer = tokio::time::timeout(POLL, locks.inspect(name)).await;
            until_next = until_next.saturating_sub(POLL);
            match answer {
                Ok(Ok(state)) => {
                    if !reached || until_next.is_zero() {
                        let view = LockView::new(name, &state);
                        let line = format!("waiting for lock {name:?}, {}", view.state());
                        self.say(&line, || json!({ "event": "waiting", "lock": view }));
                        until_next = NEXT;
                    }
                    reached = true;
                }
                _ if !reached => {}
                Ok(Err(error)) => {
                    reached = false;
                    self.warn(&format!("{error}; the wait goes on"));
                }
                Err(_) => {
                    reached = false;
                    self.warn(&format!(
                        "{} does not answer: check that it runs; the wait goes on",
                        locks.backend().store()
                    ));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// While the command runs, prints that the lease could not be renewed in time. Never returns.
    pub(super) async fn hold(self, guard: &Guard) -> Infallible {
        if !self.verbose {
            return std::future::pending().await;
        }
        let mut doubtful = false;
        loop {
            tokio::time::sleep(POLL).await;
            match guard.state() {
                GuardState::Doubtful if !doubtful => {
                    doubtful = true;
                    self.warn(&format!(
                        "lock {:?} could not be renewed, and is lost in {} unless the store answers: \
                         check that it runs",
                        guard.name(),
                        short(millis(guard.remaining()))
                    ));
                }
                GuardState::Held if doubtful => {
                    doubtful = false;
                    self.say(
                        &format!("renewed lock {:?}", guard.name()),
                        || json!({ "event": "renewed", "name": guard.name().as_str() }),
                    );
                }
                _ => {}
            }
        }
    }

    /// Reports that the store is unreachable, and is retried.
    pub(super) fn unreachable(self, error: &Error) {
        if self.verbose {
            self.warn(&format!("{error}; retrying"));
        } else if !self.json {
            store::print_unreachable(error);
        }
    }

    pub(super) fn granted(self, name: &LockName, token: FencingToken) {
        if self.verbose {
            self.say(
                &format!("acquired lock {name:?} with token {token}"),
                || json!({ "event": "granted", "name": name.as_str(), "token": token.get() }),
            );
        }
    }

    pub(super) fn released(self, name: &LockName) {
        if self.verbose {
            self.say(
                &format!("released lock {name:?}"),
                || json!({ "event": "released", "name": name.as_str() }),
            );
        }
    }

    pub(super) fn lost(self, name: &LockName, ended: Ended, kill_after: Duration) {
        self.say(
            &format!(
                "lock {name:?} was lost ({ended}), so the command is ended with TERM, and with \
                 KILL after {}: check what it has done, then run it again",
                humantime::format_duration(kill_after)
            ),
            || json!({ "event": "lost", "name": name.as_str(), "reason": ended.to_string() }),
        );
    }

    pub(super) fn warn(self, text: &str) {
        self.say(text, || json!({ "error": text }));
    }

    fn say(self, line: &str, value: impl FnOnce() -> Value) {
        if self.json {
            complain_json(&value().to_string());
        } else {
            complain(&format!("dlock: {line}"));
        }
    }
}
