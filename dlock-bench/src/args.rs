//! The command line.

use lexopt::{Arg, Parser, ValueExt};

use crate::{Failure, redis::MEASUREMENTS};

/// What to measure, and how thoroughly.
#[derive(Debug)]
pub(crate) struct Args {
    /// Fewer and shorter rounds.
    pub(crate) quick: bool,
    /// Nothing but these measurements; none is all.
    pub(crate) only: Vec<String>,
}

impl Args {
    /// Reads the command line; `None` when it asks for help.
    pub(crate) fn parse() -> Result<Option<Self>, Failure> {
        let mut args = Self { quick: false, only: Vec::new() };
        let mut store = None;
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Value(value) if store.is_none() => store = Some(value.string()?),
                Arg::Long("quick") => args.quick = true,
                Arg::Long("only") => args.only.push(measurement(parser.value()?.string()?)?),
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        match store.as_deref() {
            Some("redis") => Ok(Some(args)),
            Some(store) => Err(format!("no measurements over {store}: there is redis").into()),
            None => Err("over which store? there is redis".into()),
        }
    }

    /// Whether this measurement is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// The text of `--help`.
pub(crate) fn help() -> String {
    let mut help = "\
Measures what dlock costs over a store, as ratios to the store's bare driver in
the same run. Exits with 1 when a target is missed, with 2 when it can't measure.

Usage: dlock-bench redis [OPTIONS]

  --quick        fewer and shorter rounds: less than a minute, less certain
  --only NAME    this measurement alone; can be repeated
  --help         this text

Measurements:

"
    .to_owned();
    for (name, about, _) in MEASUREMENTS {
        help += &format!("  {name:<15}{about}\n");
    }
    help
}

fn measurement(name: String) -> Result<String, Failure> {
    if MEASUREMENTS.iter().any(|(known, ..)| *known == name) {
        return Ok(name);
    }
    let known: Vec<_> = MEASUREMENTS.iter().map(|(known, ..)| *known).collect();
    Err(format!("no measurement {name}: there are {}", known.join(", ")).into())
}
