//! Names that are used only once, such as a name for each order. The scenario measures the cost of
//! a new name, and what remains of it in the store.
//!
//! The rounds compare the rates of dlock and the bare driver. What remains is counted for dlock
//! only, on servers that have no other locks.

use std::time::Duration;

use super::{Counter, Profile, Scenario, bare};
use crate::{
    Failure,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::Figure,
    own::Own,
    store::{Store, Sweeps},
};

/// The number of tasks that share the names.
const TASKS: u32 = 64;

/// The number of names for the count.
const NAMES: u32 = 10_000;

/// The number of names that are used before the count starts, so that it leaves out the cost of a
/// new connection.
const FIRST: u32 = 64;

/// The limit for the clean-up, far above the time that it should take.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct OneTimeNames;

impl Scenario for OneTimeNames {
    fn profile(&self) -> Profile {
        Profile::of_rate(
            "one-time-names",
            format!("{TASKS} tasks of one process that use each name once"),
        )
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        match store {
            Store::Memory => Err("it keeps nothing outside the process"),
            store => Ok(vec![bare(store)]),
        }
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        super::leaves_uncounted(contestant)
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        // Each task needs time for several names.
        team.once(TASKS, lasts * 3)
    }

    fn count(
        &self,
        team: &mut Team,
        counter: &mut Counter<'_>,
        _lasts: Duration,
    ) -> Result<Figures, Failure> {
        if team.contestant.own() != Some(Own::Dlock) {
            return Ok(Vec::new());
        }
        let mut server = counter.apart(Sweeps::Seldom)?;
        let mut figures = kept(team.contestant.clone(), &mut counter.at(&mut server))?;
        let mut server = counter.apart(Sweeps::Soon)?;
        figures.extend(gone(&mut counter.at(&mut server))?);
        Ok(figures)
    }
}

/// Returns the cost of each name on the server, and what remains of it until the retention has
/// passed.
fn kept(contestant: Contestant, counter: &mut Counter<'_>) -> Result<Figures, Failure> {
    let mut users = counter.team(contestant, 1)?;
    use_all(&mut users, "first", FIRST)?;
    if counter.settle() {
        use_all(&mut users, "told", FIRST)?;
    }
    let (entries, bytes) = (counter.entries()?, counter.bytes()?);
    let before = counter.look()?;
    use_all(&mut users, "kept", NAMES)?;
    let mut names = f64::from(NAMES);
    if counter.settle() {
        use_all(&mut users, "told-then", FIRST)?;
        names += f64::from(FIRST);
    }
    let commands = before.until(counter.look()?);
    Ok(vec![
        (Figure::Commands, commands / names),
        (Figure::Entries, (counter.entries()? - entries) / names),
        (Figure::Bytes, (counter.bytes()? - bytes) / names),
    ])
}

/// Returns what remains after the retention, and the time until nothing remains.
fn gone(counter: &mut Counter<'_>) -> Result<Figures, Failure> {
    let mut users = counter.team(Contestant::forgetful(counter.server.store), 1)?;
    use_all(&mut users, "gone", NAMES)?;
    let (left, took) = counter.until_empty(CLEAN_UP_LIMIT)?;
    let mut figures = vec![(Figure::Left, left)];
    if left == 0.0 {
        figures.push((Figure::Gone, took.as_secs_f64()));
    }
    Ok(figures)
}

fn use_all(users: &mut Team, name: &str, count: u32) -> Result<(), Failure> {
    users.ask(|_| format!("use {name} {count} {TASKS}"))?;
    Ok(())
}
