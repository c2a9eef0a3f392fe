//! Keeps the processors awake while latencies are measured.
//!
//! A round trip between idle processes is mostly the time that a processor takes to wake up. On a
//! virtual machine this is many times as long as driver and server need. It would hide the cost of
//! dlock, and it varies with the other load. So this executable starts itself again to spin on all
//! processors, with the lowest priority: a process with work preempts it at once, as on a busy
//! machine.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use rustix::process::nice;

use crate::{Failure, processors};

/// The environment variable that makes a process spin.
const SPINS: &str = "DLOCK_BENCH_SPINS";

/// While this value lives, no processor sleeps.
#[derive(Debug)]
pub(crate) struct Awake(Child);

impl Awake {
    /// Starts the spinning process.
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

/// Whether this process is the spinning one.
pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(SPINS).is_some()
}

/// Spins until the parent has ended, however it ended.
pub(crate) fn spin() -> Result<(), Failure> {
    nice(19)?;
    for processor in processors::all()? {
        std::thread::spawn(move || {
            // Two spinning threads on one processor would let another processor sleep.
            let _ = processors::bind(None, &[processor]);
            loop {
                std::hint::spin_loop();
            }
        });
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
