//! The command line: its subcommands, and the help that applies to all of them.

use clap::{Parser, Subcommand};

use crate::{
    completions::Completions,
    doctor::Doctor,
    failure::{Failure, code},
    guarantees::GuaranteesOf,
    inspect::Inspect,
    list::List,
    man::Man,
    raise_tokens::RaiseTokens,
    revoke::Break,
    run::Run,
    store::Store,
    watch::Watch,
};

/// The text below the help of the command, also in its man page.
const AFTER: &str = "\
Exit codes:
  0    success; `run`: the command's own exit code, and 128+N if signal N ended it
  1    `doctor`: a check failed; `break`: you answered no, or the lock has another holder now
  122  the store can't be reached
  123  `run`: the lock was lost while the command ran, and the command was ended
  124  `run`: the lock is still busy after --wait (--busy-code sets another code)
  125  usage error: invalid argument, URL or lock name
  126  `run`: the command can't be run
  127  `run`: the command was not found

Environment:
  DLOCK_URL       the store, if neither --url nor --url-file is given
  DLOCK_URL_FILE  a file with the URL of the store, if DLOCK_URL is not set either

All users of the machine can see a URL on a command line: put a URL with a password into \
DLOCK_URL or into a file.

Examples:
  export DLOCK_URL=redis://localhost
  dlock run --name nightly-job --wait 0 -- ./report.sh
  dlock list
  dlock inspect nightly-job
  dlock doctor";

/// Distributed locks on the command line.
///
/// Runs commands under a lock that one machine at a time can hold, and inspects and repairs the
/// locks of a store.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, after_long_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: Store,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Inspect(Inspect),
    List(List),
    Watch(Watch),
    Break(Break),
    RaiseTokens(RaiseTokens),
    Doctor(Doctor),
    Guarantees(GuaranteesOf),
    Completions(Completions),
    Man(Man),
}

impl Command {
    /// Whether the caller asked for JSON.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::List(args) => args.json,
            Self::Watch(args) => args.json,
            Self::Break(args) => args.json,
            Self::RaiseTokens(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Guarantees(args) => args.json,
            Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

/// Reads the command line. Prints help and usage errors itself, and returns the exit code for them.
pub(crate) fn parse() -> Result<Cli, u8> {
    Cli::try_parse().map_err(|error| {
        if !error.use_stderr() {
            // An error here means that the reader of the output has closed the pipe.
            let _ = error.print();
            return 0;
        }
        // The message quotes an argument or a part of it, which may be a URL with a password.
        let text = error.to_string();
        let mut args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
        if args.any(|arg| shows_password(&text, &arg)) {
            let why =
                "a URL is not expected here, or in this form: write --url URL, or set DLOCK_URL";
            Failure::misuse(why).print(false);
        } else {
            let _ = error.print();
        }
        code::MISUSE
    })
}

/// Whether the text shows the end of what stands before the last `@` of the argument, or an
/// argument that is a URL.
fn shows_password(text: &str, arg: &str) -> bool {
    let url = arg.find("://").map(|at| &arg[at..]);
    let login = arg.rfind('@').map(|at| &arg[..at]).filter(|login| login.contains(':'));
    let end = login.map(|login| {
        let from = login.char_indices().rev().nth(5).map_or(0, |(at, _)| at);
        &login[from..]
    });
    url.into_iter().chain(end).any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_exit_code_is_in_the_help() {
        for code in [
            code::UNAVAILABLE,
            code::LOST,
            code::BUSY,
            code::MISUSE,
            code::CANT_RUN,
            code::NOT_FOUND,
        ] {
            assert!(AFTER.contains(&format!("\n  {code}  ")), "{code}");
        }
    }
}
