//! `dlock man`: the man pages.

use std::path::PathBuf;

use clap::{Args, Command};

use crate::{failure::Failure, output};

/// Print the man page.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  dlock man | man -l -\n  dlock man run | man -l -\n  dlock man --dir /usr/local/share/man/man1"
)]
pub(crate) struct Man {
    /// Print the page of this subcommand
    #[arg(conflicts_with = "dir")]
    command: Option<String>,

    /// Write all pages into this directory: dlock.1, dlock-run.1, ...
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Man, command: Command) -> Result<u8, Failure> {
    // Pages of subcommands are named after the command: dlock-run.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(command, dir).map_err(|error| {
            Failure::misuse(format!(
                "the pages can't be written to {} ({error}): check the directory",
                dir.display()
            ))
        })?;
        return Ok(0);
    }
    let command = match &args.command {
        None => command,
        Some(name) => command.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::misuse(format!(
                "there is no subcommand {name:?}: run dlock --help to list them"
            ))
        })?,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|error| {
        Failure::misuse(format!("the page can't be made ({error}): report this"))
    })?;
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
