//! `dlock completions`: a script for a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{failure::Failure, output};

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  dlock completions bash > ~/.local/share/bash-completion/completions/dlock"
)]
pub(crate) struct Completions {
    /// The shell that the script is for
    shell: Shell,
}

pub(crate) fn run(args: &Completions, mut command: Command) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "dlock", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
