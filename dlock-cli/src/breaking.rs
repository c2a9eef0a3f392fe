//! `dlock break`: takes a lock away from whoever holds it.

use std::io::IsTerminal;

use clap::Args;
use dlock::{LockName, Locks, admin::LockState};
use serde::Serialize;

use crate::{
    failure::{Failure, code, complain},
    output::{self, ClaimView, LockView},
    store::{self, Store},
};

/// Take a lock away from whoever holds it.
///
/// For a holder that is gone for good, when its lease is too long to wait for. A holder that lives
/// learns of it a third of its lease later at the latest, and works on until then, while the next
/// in line works as well: see that it is dead first, or that what it writes to checks fencing
/// tokens.
///
/// It shows who holds the lock and asks. Without a terminal to ask on it needs --yes.
///
/// With --json one object: name, and taken, the claims it was taken from, as `inspect` prints them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  dlock break nightly-job\n  dlock break nightly-job --yes")]
pub(crate) struct Break {
    /// The lock
    name: String,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    store: Store,
}

#[derive(Serialize)]
struct Taken<'a> {
    name: &'a str,
    taken: Vec<ClaimView>,
}

pub(crate) async fn run(args: Break) -> Result<u8, Failure> {
    let name = LockName::new(&args.name)?;
    let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.yes && !can_ask {
        return Err(Failure::misuse(
            "there is no terminal to ask on: see with `dlock inspect` who holds the lock, then \
             write --yes",
        ));
    }
    let locks = args.store.connect().await?;
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
                return Err(Failure::new(code::NO, "nothing was changed"));
            }
            let now = locks.inspect(name).await?;
            if holders(&now) != holders(&state) {
                return Err(Failure::new(
                    code::NO,
                    "nothing was changed: the lock has changed hands since; look again",
                ));
            }
        }
    }
    let taken: Vec<ClaimView> =
        locks.force_release(name).await?.iter().map(ClaimView::new).collect();
    if args.json {
        output::print_json(&Taken { name: name.as_str(), taken })?;
    } else if taken.is_empty() {
        output::print(&format!("{name}: nobody holds it, nothing was changed\n"))?;
    } else {
        for claim in &taken {
            let token = claim.token.map_or(String::new(), |token| format!(" with token {token}"));
            let note = claim.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
            output::print(&format!("{name}: taken from claim {}{token}{note}\n", claim.claim))?;
        }
    }
    Ok(0)
}

fn holders(state: &LockState) -> Vec<dlock::admin::ClaimId> {
    state.holders.iter().map(|holder| holder.claim).collect()
}

/// Asks on the terminal.
fn agreed() -> Result<bool, Failure> {
    complain(
        "A holder that lives works on for up to a third of its lease, together with the next one.\n\
         Take the lock away? [y/N]",
    );
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::misuse(format!("the answer can't be read: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
