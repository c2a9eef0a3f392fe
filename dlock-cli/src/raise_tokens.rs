//! `dlock raise-tokens`: has a store give out larger fencing tokens.

use clap::Args;
use dlock::{FencingToken, LockName};
use serde::Serialize;

use crate::{
    failure::Failure,
    output, parse,
    store::{self, Store},
};

/// Raise the fencing tokens of a lock above one that a resource has seen.
///
/// For a store that was restored from a backup or has lost its data, when what the lock protects
/// has seen larger tokens and refuses every new holder. Every later grant of the lock, to any
/// client, has a larger token; who holds the lock keeps it. The store remembers it as the lock's
/// last token: run it again after another loss of data.
///
/// It can't be taken back, and a smaller token than the store's own changes nothing. ZooKeeper, and
/// plain and advisory locks, can't raise their tokens: set dlock.token_offset there.
///
/// With --json one object: name, and above, the token.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dlock raise-tokens inventory/42 1795430128330001")]
pub(crate) struct RaiseTokens {
    /// The lock
    name: String,

    /// The last token that the resource has seen
    #[arg(value_parser = parse::token)]
    token: FencingToken,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    store: Store,
}

#[derive(Serialize)]
struct Raised<'a> {
    name: &'a str,
    above: u64,
}

pub(crate) async fn run(args: RaiseTokens) -> Result<u8, Failure> {
    let (name, above) = (LockName::new(&args.name)?, args.token);
    let locks = args.store.connect().await?;
    let raised = locks.raise_tokens(&name, above).await;
    store::close(&locks).await;
    raised?;
    if args.json {
        output::print_json(&Raised { name: name.as_str(), above: above.get() })?;
    } else {
        output::print(&format!("{name}: tokens are above {above} from now on\n"))?;
    }
    Ok(0)
}
