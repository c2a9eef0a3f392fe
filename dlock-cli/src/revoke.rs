//! `dlock break`: revokes a lock.

use std::io::IsTerminal;

use clap::Args;
use dlock::{LockName, Locks, admin::LockState};
use serde::Serialize;

use crate::{
    failure::{Failure, code, complain},
    output::{self, ClaimView, LockView},
    store::{self, Store},
};

/// Revoke a lock whose holder is dead.
///
/// Use it if the lease is too long to wait for. A holder that is still alive notices the loss with
/// its next renewal, at most a third of its lease later. Until then it continues to work, at the
/// same time as the next holder. So first make sure that the holder is dead, or that the resource
/// that it writes to checks fencing tokens.
///
/// The command shows the holder and asks for confirmation. Without a terminal it needs --yes. It
/// can't revoke an advisory lock, nor a plain lock of another program: end the holder itself.
///
/// With --json it prints one object: name, and taken, the claims that lost the lock, as `inspect`
/// prints them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  dlock break nightly-job\n  dlock break nightly-job --yes")]
pub(crate) struct Break {
    /// The name of the lock
    name: String,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Taken<'a> {
    name: &'a str,
    taken: Vec<ClaimView>,
}

pub(crate) async fn run(args: Break, store: &Store) -> Result<u8, Failure> {
    let name = LockName::new(&args.name)?;
    let can_confirm = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.yes && !can_confirm {
        return Err(Failure::misuse(
            "there is no terminal to ask on: check the holder with `dlock inspect`, then add --yes",
        ));
    }
    let locks = store.connect().await?;
    let taken = take(&args, &name, &locks).await;
    store::close(&locks).await;
    taken
}

async fn take(args: &Break, name: &LockName, locks: &Locks) -> Result<u8, Failure> {
    if !args.yes {
        let state = locks.inspect(name).await?;
        if !state.holders.is_empty() {
            complain(LockView::new(name, &state).text().trim_end());
            if !agreed()? {
                return Err(Failure::new(
                    code::NO,
                    "nothing was changed: answer y to break the lock",
                ));
            }
            let now = locks.inspect(name).await?;
            if holders(&now) != holders(&state) {
                return Err(Failure::new(
                    code::NO,
                    "nothing was changed, because the lock has another holder now: run dlock break \
                     again",
                ));
            }
        }
    }
    let taken: Vec<ClaimView> =
        locks.force_release(name).await?.iter().map(ClaimView::new).collect();
    if args.json {
        output::print_json(&Taken { name: name.as_str(), taken })?;
    } else if taken.is_empty() {
        output::print(&format!("{name}: has no holder, nothing was changed\n"))?;
    } else {
        for claim in &taken {
            let token = claim.token.map_or(String::new(), |token| format!(" with token {token}"));
            let note = claim.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
            output::print(&format!("{name}: revoked from claim {}{token}{note}\n", claim.claim))?;
        }
    }
    Ok(0)
}

fn holders(state: &LockState) -> Vec<dlock::admin::ClaimId> {
    state.holders.iter().map(|holder| holder.claim).collect()
}

/// Asks for confirmation on the terminal.
fn agreed() -> Result<bool, Failure> {
    complain(
        "A holder that is still alive continues to work for up to a third of its lease, at the \
         same time as the next holder.\nBreak the lock? [y/N]",
    );
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| {
        Failure::misuse(format!("the answer can't be read ({error}): use --yes"))
    })?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
