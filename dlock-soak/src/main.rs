//! Harms stores and those who take locks in them, for as long as is asked for, and says whether
//! what dlock promises was kept.

use std::process::ExitCode;

fn main() -> ExitCode {
    dlock_soak::command::main()
}
