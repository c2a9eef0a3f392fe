//! The progress of an act: a bar for people, plain lines for logs. Both go to standard error, so
//! that standard output contains only the account.

use std::{
    io::{self, IsTerminal as _},
    sync::atomic::{AtomicU32, Ordering},
};

use indicatif::{ProgressBar, ProgressStyle};

#[derive(Debug)]
pub(crate) struct Progress {
    total: u32,
    done: AtomicU32,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn of(total: u32) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total.into());
            if let Ok(style) =
                ProgressStyle::with_template("   {bar:40} {pos} of {len} buyers served")
            {
                bar.set_style(style);
            }
            bar
        });
        Self { total, done: AtomicU32::new(0), bar }
    }

    /// Counts one served buyer.
    pub(crate) fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            // A log gets one line for every quarter.
            None if done.is_multiple_of((self.total / 4).max(1)) => {
                eprintln!("   {done} of {} buyers served", self.total);
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    /// Removes the bar: the account on standard output contains the result.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
