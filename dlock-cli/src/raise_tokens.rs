//! `dlock raise-tokens`: makes a store grant larger fencing tokens.

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
/// Use it after a restore from a backup or a loss of data, if the resource has seen larger tokens
/// and refuses every new holder. Every later grant of the lock, to any client, has a larger token. A
/// current holder keeps the lock and its token. The store remembers the token as the last token of
/// the lock: run the command again after another loss of data.
///
/// It can't be undone. A token that is smaller than the store's own changes nothing. ZooKeeper,
/// etcd, plain locks and advisory locks can't raise tokens: set dlock.token_offset there.
///
/// With --json it prints one object: name, and above, the token.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dlock raise-tokens inventory/42 1795430128330001")]
pub(crate) struct RaiseTokens {
    /// The name of the lock
    name: String,

    /// The largest token that the resource has seen
    #[arg(value_parser = parse::token)]
    token: FencingToken,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Raised<'a> {
    name: &'a str,
    above: u64,
}

pub(crate) async fn run(args: RaiseTokens, store: &Store) -> Result<u8, Failure> {
    let (name, above) = (LockName::new(&args.name)?, args.token);
    let locks = store.connect().await?;
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
