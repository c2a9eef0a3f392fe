//! `dlock inspect`: the holders and the waiters of a lock.

use clap::Args;
use dlock::LockName;

use crate::{
    failure::Failure,
    output::{self, LockView},
    store::{self, Store},
};

/// Show the holders and the waiters of a lock.
///
/// It changes nothing. For each claim it shows the mode, the fencing token, how long the claim has
/// held or waited (if the store knows), how long it lasts without renewal, its id, and the note of
/// its client (if the store keeps notes).
///
/// With --json it prints one object: name, free, holders, waiters, last_token; each claim has claim,
/// mode (exclusive, shared, or permits with permits and of), token, age_ms, remaining_ms
/// (null if it never expires), and note.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dlock inspect inventory/42")]
pub(crate) struct Inspect {
    /// The name of the lock
    name: String,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(args: Inspect, store: &Store) -> Result<u8, Failure> {
    let name = LockName::new(&args.name)?;
    let locks = store.connect().await?;
    let state = locks.inspect(&name).await;
    store::close(&locks).await;
    let view = LockView::new(&name, &state?);
    if args.json {
        output::print_json(&view)?
    } else {
        output::print(&view.text())?
    }
    Ok(0)
}
