//! The keyboard of `dlock watch`: `q` ends it.
//!
//! The terminal passes keys on at once and does not show them. Its settings are restored at each
//! end, also when a signal ends or stops dlock.

use std::{
    io::{IsTerminal, Read, stdin},
    thread,
};

use rustix::{
    process::{Signal, getpgrp, getpid, kill_process},
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr},
};
use tokio::sync::oneshot;

use crate::{
    failure::Failure,
    run::signals::{self, Signals},
};

/// The end of the output by a key or a signal.
pub(super) struct Keys(Option<Terminal>);

struct Terminal {
    /// The settings to restore.
    before: Termios,
    signals: Signals,
    quit: oneshot::Receiver<()>,
}

impl Keys {
    /// Reads no keys.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Reads the keys if stdin is a terminal whose foreground process is this one.
    pub(super) fn read() -> Result<Self, Failure> {
        let foreground = tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp());
        let Some(before) = tcgetattr(stdin()).ok().filter(|_| stdin().is_terminal() && foreground)
        else {
            return Ok(Self::none());
        };
        let signals = Signals::listen()?;
        let (sender, quit) = oneshot::channel();
        set(&raw(&before));
        // It ends with the process.
        thread::spawn(move || {
            let is_quit = |byte: Result<u8, _>| byte.is_ok_and(|byte| byte == b'q' || byte == b'Q');
            if stdin().lock().bytes().any(is_quit) {
                let _ = sender.send(());
            }
        });
        Ok(Self(Some(Terminal { before, signals, quit })))
    }

    /// Waits for the end, and returns the exit code. Handles ^Z.
    pub(super) async fn end(&mut self) -> u8 {
        let Some(terminal) = &mut self.0 else { return std::future::pending().await };
        let mut at_end = false;
        loop {
            tokio::select! {
                quit = &mut terminal.quit, if !at_end => match quit {
                    Ok(()) => return 0,
                    Err(_) => at_end = true,
                },
                signal = terminal.signals.next() => {
                    if signal != Signal::TSTP {
                        return signals::exit_code(signal);
                    }
                    set(&terminal.before);
                    let _ = kill_process(getpid(), Signal::STOP);
                    if tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp()) {
                        set(&raw(&terminal.before));
                    }
                }
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(terminal) = &self.0 {
            set(&terminal.before);
        }
    }
}

/// Returns the settings without lines and without echo. ^C still sends a signal.
fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    raw
}

fn set(settings: &Termios) {
    let _ = tcsetattr(stdin(), OptionalActions::Now, settings);
}
