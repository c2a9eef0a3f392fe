//! Keeps the processors awake while latencies are measured.
//!
//! A round trip between idle processes is mostly the time that a processor takes to wake up, on a
//! virtual machine many times what driver and server need. It would hide what dlock adds, and it
//! comes and goes with whatever else runs. So this executable is started once more to spin, on all
//! processors and last in the scheduler's favour: whoever has work takes its place at once, as on
//! a busy machine.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use rustix::process::nice;

use crate::{Failure, processors};

/// Its presence makes a process one that spins.
const SPINS: &str = "DLOCK_BENCH_SPINS";

/// While this lives, no processor goes to sleep.
#[derive(Debug)]
pub(crate) struct Awake(Child);

impl Awake {
    /// Keeps them awake from now on.
    pub(crate) fn keep() -> Result<Self, Failure> {
        let spins = Command::new(std::env::current_exe()?)
            .env(SPINS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(spins))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether this process is one that spins.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(SPINS).is_some()
}

/// Spins until the parent is gone, however it went.
pub(crate) fn spin() -> Result<(), Failure> {
    nice(19)?;
    for processor in processors::all()? {
        std::thread::spawn(move || {
            // Two on one processor would leave another asleep.
            let _ = processors::bind(None, &[processor]);
            loop {
                std::hint::spin_loop();
            }
        });
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
