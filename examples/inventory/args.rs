//! The command line.

use lexopt::{Arg, Parser, ValueExt};

use crate::Failure;

pub(crate) const HELP: &str = "\
Sells the last items of a shop from several processes at once: without a lock,
with dlock, and with a holder that is stopped past its lease.

Usage: inventory [OPTIONS]

  --url URL      where the locks are [default: an SQLite file in a temporary directory]
  --workers N    worker processes, 2 to 64 [default: 8]
  --items N      items in stock, 1 to 100000 [default: 100]
  --buyers N     buyers, more than items, at most 1000000 [default: 500]
  --help         this text
";

#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) url: Option<String>,
    pub(crate) workers: u32,
    pub(crate) items: u32,
    pub(crate) buyers: u32,
}

impl Args {
    /// Reads the command line; returns `None` if it asks for help.
    pub(crate) fn parse() -> Result<Option<Self>, Failure> {
        let mut args = Self { url: None, workers: 8, items: 100, buyers: 500 };
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("url") => args.url = Some(parser.value()?.string()?),
                Arg::Long("workers") => args.workers = number("workers", &mut parser)?,
                Arg::Long("items") => args.items = number("items", &mut parser)?,
                Arg::Long("buyers") => args.buyers = number("buyers", &mut parser)?,
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        args.check()?;
        Ok(Some(args))
    }

    fn check(&self) -> Result<(), Failure> {
        // One worker can't oversell, and neither can a shop with more items than buyers.
        if !(2..=64).contains(&self.workers) {
            return Err(format!("--workers {} is not between 2 and 64", self.workers).into());
        }
        if !(1..=100_000).contains(&self.items) {
            return Err(format!("--items {} is not between 1 and 100000", self.items).into());
        }
        if self.buyers <= self.items || self.buyers > 1_000_000 {
            return Err(format!(
                "--buyers {} is not between {} (one more than items) and 1000000",
                self.buyers,
                self.items + 1
            )
            .into());
        }
        Ok(())
    }
}

fn number(option: &str, parser: &mut Parser) -> Result<u32, Failure> {
    let value = parser.value()?;
    value
        .parse()
        .map_err(|_| format!("--{option} {} is not a whole number", value.display()).into())
}
