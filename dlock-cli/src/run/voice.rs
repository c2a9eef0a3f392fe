//! The messages of `dlock run`, which it prints besides its command's output.

use std::{convert::Infallible, time::Duration};

use dlock::{FencingToken, LockName, Locks, guard::Ended};
use serde_json::{Value, json};

use crate::{failure::complain, output::LockView};

/// The wait for a lock after which the first message is printed.
const FIRST: Duration = Duration::from_secs(1);

/// The pause until the next message.
const NEXT: Duration = Duration::from_secs(30);

/// Prints messages on stderr.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice {
    pub(super) json: bool,
    pub(super) verbose: bool,
}

impl Voice {
    /// Prints the holder of the lock repeatedly during the wait. Never returns.
    pub(super) async fn wait(self, locks: &Locks, name: &LockName) -> Infallible {
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = NEXT;
            if !self.verbose {
                continue;
            }
            match locks.inspect(name).await {
                Ok(state) => {
                    let view = LockView::new(name, &state);
                    let line = format!("waiting for lock {name:?}, {}", view.state());
                    self.say(&line, || json!({ "event": "waiting", "lock": view }));
                }
                Err(error) => self.warn(&error.to_string()),
            }
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
            complain(&value().to_string());
        } else {
            complain(&format!("dlock: {line}"));
        }
    }
}
