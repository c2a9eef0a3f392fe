//! The runtime of the locks.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::{ConfigIssue, Error};

/// Returns the current tokio runtime, which must have timers. Locks, and the tasks of a backend,
/// run on it.
///
/// # Errors
/// `Config(Runtime)` outside a runtime, and on one that was built without timers.
pub fn current_runtime() -> Result<Handle, Error> {
    let refuse = |why| Error::config(ConfigIssue::Runtime, why);
    let runtime = Handle::try_current().map_err(|error| {
        refuse(
            "there is no tokio runtime here, and locks need one for renewal: create them inside a \
             runtime (#[tokio::main], Runtime::block_on)",
        )
        .with_source(error)
    })?;
    // tokio has no function for this check; creating a timer panics if the runtime has none.
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        refuse(
            "the tokio runtime has no timers, which leases need: call enable_time() or \
             enable_all() on its builder",
        )
    })?;
    Ok(runtime)
}

/// Returns [`current_runtime`], which must also have I/O. Connections to a server run on it. `open`
/// creates something that needs I/O, such as a socket of tokio's.
///
/// # Errors
/// `Config(Runtime)` outside a runtime, and on one that was built without timers or I/O.
pub fn current_io_runtime(open: impl FnOnce() -> std::io::Result<()>) -> Result<Handle, Error> {
    let runtime = current_runtime()?;
    // The connections of a simulation have nothing to do with the machine.
    if cfg!(dlock_sim) {
        return Ok(runtime);
    }
    // As for timers. An error does not concern the runtime, and the connection will report it.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(open)) {
        Ok(_) => Ok(runtime),
        Err(_) => Err(Error::config(
            ConfigIssue::Runtime,
            "the tokio runtime has no I/O, which connections need: call enable_io() or enable_all() \
             on its builder",
        )),
    }
}
