//! Injects faults into stores and their clients for the requested time, and reports whether dlock
//! kept its promises.

use std::process::ExitCode;

fn main() -> ExitCode {
    dlock_soak::command::main()
}
