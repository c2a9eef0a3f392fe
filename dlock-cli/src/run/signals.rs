//! The signals that `dlock run` forwards.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// The signals that are forwarded to the command, and that of ^Z.
const PASSED: [Signal; 7] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
];

/// Receives the signals, so that they don't end dlock.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Installs the handlers. A signal that dlock was started to ignore (by nohup, or by a shell
    /// for a background job) stays ignored, and the command inherits that.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let ignored = ignored();
        let heard = PASSED.into_iter().filter(|signal| !ignores(ignored, *signal));
        let streams = heard.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw())).map_err(|error| {
                Failure::misuse(format!(
                    "signal handlers can't be installed ({error}): check the limits of this process"
                ))
            })?;
            Ok((signal, stream))
        });
        streams.collect::<Result<_, Failure>>().map(Self)
    }

    /// Returns the next signal.
    ///
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Discards the signals that have arrived.
    pub(crate) fn discard(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for (_, stream) in &mut self.0 {
            while stream.poll_recv(&mut cx).is_ready() {}
        }
    }

    /// Returns the next signal that ends a program. If there is no command yet, ^Z stops dlock
    /// alone.
    pub(crate) async fn ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::TSTP => {
                    let pid = rustix::process::getpid();
                    let _ = rustix::process::kill_process(pid, Signal::STOP);
                }
                signal => return signal,
            }
        }
    }
}

/// Returns the exit code that a shell reports for a program that this signal has ended.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

/// Returns a bit for each signal that this process ignores; none if the system does not report
/// them.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn ignores(mask: u64, signal: Signal) -> bool {
    let bit = u32::try_from(signal.as_raw() - 1).unwrap_or(u32::MAX);
    mask.checked_shr(bit).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_has_a_bit_for_each_signal() {
        assert!(ignores(1, Signal::HUP) && ignores(0b10, Signal::INT));
        assert!(!ignores(0b10, Signal::HUP) && !ignores(0, Signal::TERM));
    }

    #[test]
    fn an_exit_code_is_above_128() {
        assert_eq!(exit_code(Signal::TERM), 143);
    }
}
