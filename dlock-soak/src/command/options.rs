//! The command line.

use std::{path::PathBuf, time::Duration};

use lexopt::{Arg, Parser, ValueExt};

use super::arena::{Place, SETUPS};

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) places: Vec<Place>,
    /// How long all of it takes, one after the other, without the time to set up.
    pub(super) time: Duration,
    /// Where the report goes.
    pub(super) report: Option<PathBuf>,
    /// How many places are harmed at the same time.
    pub(super) jobs: usize,
    /// The command of an older version, for half of the processes.
    pub(super) old: Option<PathBuf>,
    /// Keeps all histories, and not only those that are wrong.
    pub(super) keep: bool,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    Run(Options),
    /// Judges a history that was kept.
    Judge(PathBuf),
    Help,
    List,
}

/// Less than this for one place leaves no time for harm between the quiet before and after it.
const SHORTEST: Duration = Duration::from_secs(30);

pub(super) const HELP: &str = "\
Harms stores and those who take locks in them, and says whether what dlock promises was kept.

Usage: dlock-soak --url URL [--url URL ...] [--minutes N] [--report DIR]

Options:
  --url URL        a private store, such as private:redis (see --list), or the URL of one that is
                   there, of which only the holders are harmed; private:all for all private ones
  --minutes N      the minutes on all stores together, which they share alike; 1 for each unless
                   given
  --report DIR     writes report.md, report.json, plots (SVG), and the histories that were wrong
  --keep           writes the histories that were right, too
  --jobs N         harms so many stores at the same time, which takes so many times less; 1 unless
                   given
  --with-old BIN   has every second process run BIN, the dlock-soak of an older version: see
                   scripts/old-build
  --judge FILE     judges a history that was kept (DIR/NAME.jsonl) once more, and harms nobody
  --list           lists the private stores
  --help           prints this

Exit status: 0 all was kept (pass), 1 something was not (fail), 2 the command can't be done as
given, 3 too little happened to say it (unknown).
";

impl Asked {
    /// Reads the arguments of this process.
    ///
    /// # Errors
    /// What can't be read, and what to do.
    pub(super) fn read(mut parser: Parser) -> Result<Self, String> {
        let (mut places, mut minutes, mut report) = (Vec::new(), None, None);
        let (mut jobs, mut keep, mut old) = (1, false, None);
        let text = |error: lexopt::Error| error.to_string();
        while let Some(arg) = parser.next().map_err(text)? {
            match arg {
                Arg::Long("url") => {
                    let url = parser.value().and_then(|url| url.string()).map_err(text)?;
                    match url.as_str() {
                        "private:all" => places.extend(SETUPS.iter().map(Place::Private)),
                        url => places.push(Place::parse(url)?),
                    }
                }
                Arg::Long("minutes") => {
                    minutes = Some(parser.value().and_then(|n| n.parse::<f64>()).map_err(text)?);
                }
                Arg::Long("report") => {
                    report = Some(PathBuf::from(parser.value().map_err(text)?));
                }
                Arg::Long("jobs") => {
                    jobs = parser.value().and_then(|n| n.parse::<usize>()).map_err(text)?;
                }
                Arg::Long("keep") => keep = true,
                Arg::Long("with-old") => {
                    old = Some(program(parser.value().map_err(text)?.into())?);
                }
                Arg::Long("judge") => {
                    return Ok(Self::Judge(parser.value().map_err(text)?.into()));
                }
                Arg::Long("list") => return Ok(Self::List),
                Arg::Long("help") | Arg::Short('h') => return Ok(Self::Help),
                arg => return Err(format!("{}: see --help", arg.unexpected())),
            }
        }
        if places.is_empty() {
            return Err("no store is named: give --url private:redis, or see --list".to_owned());
        }
        if jobs == 0 {
            return Err("--jobs 0 does nothing: give 1 or more".to_owned());
        }
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let time = match minutes {
            None => Duration::from_secs(60).saturating_mul(count),
            Some(minutes) => Duration::try_from_secs_f64(minutes * 60.0)
                .map_err(|_| format!("--minutes {minutes} is no time: give a number above 0"))?,
        };
        if time / count < SHORTEST {
            return Err(format!(
                "{time:?} for {count} stores is too little for a verdict: give each {SHORTEST:?} \
                 or more"
            ));
        }
        Ok(Self::Run(Options { places, time, report, jobs, old, keep }))
    }
}

/// A program that can be started.
fn program(path: PathBuf) -> Result<PathBuf, String> {
    match path.is_file() {
        // Without a directory, it would be looked for on the path.
        true => path.canonicalize().map_err(|error| format!("{}: {error}", path.display())),
        false => Err(format!(
            "--with-old {} is no program: build one with scripts/old-build COMMIT",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Asked, String> {
        Asked::read(Parser::from_args(args))
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let asked = read(&["--url", "private:redis", "--url=private:zk", "--minutes", "3"]);
        let Ok(Asked::Run(options)) = asked else { panic!("{asked:?}") };
        assert_eq!(options.places.len(), 2);
        assert_eq!(options.time, Duration::from_secs(180));
        assert_eq!(read(&["--list", "--url"]), Ok(Asked::List));
        assert_eq!(read(&["--judge", "a.jsonl"]), Ok(Asked::Judge("a.jsonl".into())));
    }

    #[test]
    fn all_are_a_minute_each() {
        let Ok(Asked::Run(options)) = read(&["--url", "private:all"]) else { panic!() };
        assert_eq!(options.places.len(), SETUPS.len());
        assert_eq!(options.time, Duration::from_secs(60 * 11));
    }

    #[test]
    fn what_can_not_be_done_says_what_can() {
        for (args, says) in [
            (&[][..], "--list"),
            (&["--url", "private:oracle"], "one of memory"),
            (&["--url", "private:redis", "--minutes", "0.1"], "30s"),
            (&["--url", "private:redis", "--minutes", "-1"], "above 0"),
            (&["--url", "private:redis", "--jobs", "0"], "1 or more"),
            (&["--url", "private:redis", "--with-old", "/dev/null/x"], "scripts/old-build"),
            (&["--uri", "x"], "--help"),
        ] {
            let error = read(args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }
}
