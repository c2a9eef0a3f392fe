//! The command line.

use lexopt::{Arg, Parser, ValueExt};

use crate::{Failure, redis, sql, zk};

/// What to measure, and how thoroughly.
#[derive(Debug)]
pub(crate) struct Args {
    /// Over which store.
    pub(crate) store: Store,
    /// Fewer and shorter rounds.
    pub(crate) quick: bool,
    /// With a server that waits for its disk.
    pub(crate) durable: bool,
    /// Nothing but these measurements; none is all.
    pub(crate) only: Vec<String>,
}

/// A store that there are measurements over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Redis,
    Postgres,
    Mysql,
    Zk,
}

/// The name of a measurement and what it is about.
type About = (&'static str, &'static str);

impl Store {
    const ALL: [(&str, Self); 4] = [
        ("redis", Self::Redis),
        ("postgres", Self::Postgres),
        ("mysql", Self::Mysql),
        ("zk", Self::Zk),
    ];

    fn named(name: Option<&str>) -> Result<Self, Failure> {
        let known = Self::ALL.map(|(known, _)| known).join(", ");
        let Some(name) = name else {
            return Err(format!("over which store? there are {known}").into());
        };
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        let unknown = || format!("no measurements over {name}: there are {known}");
        Ok(found.ok_or_else(unknown)?.1)
    }

    fn measurements(self) -> Vec<About> {
        match self {
            Self::Redis => {
                redis::MEASUREMENTS.iter().map(|(name, about, _)| (*name, *about)).collect()
            }
            Self::Postgres | Self::Mysql => {
                sql::MEASUREMENTS.iter().map(|(name, about, _)| (*name, *about)).collect()
            }
            Self::Zk => zk::MEASUREMENTS.iter().map(|(name, about, _)| (*name, *about)).collect(),
        }
    }
}

impl Args {
    /// Reads the command line; `None` when it asks for help.
    pub(crate) fn parse() -> Result<Option<Self>, Failure> {
        let (mut store, mut quick, mut durable, mut only) = (None, false, false, Vec::new());
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Value(value) if store.is_none() => store = Some(value.string()?),
                Arg::Long("quick") => quick = true,
                Arg::Long("durable") => durable = true,
                Arg::Long("only") => only.push(parser.value()?.string()?),
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        let store = Store::named(store.as_deref())?;
        if durable && !matches!(store, Store::Postgres | Store::Mysql) {
            return Err("--durable is for postgres and mysql".into());
        }
        let known = store.measurements();
        if let Some(name) = only.iter().find(|name| known.iter().all(|(known, _)| known != name)) {
            let known: Vec<_> = known.iter().map(|(known, _)| *known).collect();
            return Err(format!("no measurement {name}: there are {}", known.join(", ")).into());
        }
        Ok(Some(Self { store, quick, durable, only }))
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

Usage: dlock-bench redis|postgres|mysql|zk [OPTIONS]
       dlock-bench compare [OPTIONS]    with other locks; see compare --help

  --quick        fewer and shorter rounds: faster, less certain
  --only NAME    this measurement alone; can be repeated
  --durable      with a server that waits for its disk, as servers do unless they
                 are told otherwise: postgres and mysql (which is MariaDB) alone
  --help         this text
"
    .to_owned();
    for (title, store) in
        [("redis", Store::Redis), ("postgres and mysql", Store::Postgres), ("zk", Store::Zk)]
    {
        help += &format!("\nMeasurements over {title}:\n\n");
        for (name, about) in store.measurements() {
            help += &format!("  {name:<15}{about}\n");
        }
    }
    help
}
