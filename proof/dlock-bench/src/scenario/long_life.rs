//! One name in a database that is used for a long time. The scenario measures whether the name
//! stays as fast as a new one, whether its row stays small, and whether the row is deleted after
//! the last use.
//!
//! It runs on a server that has no other rows.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::{Counter, Profile, Scenario};
use crate::{
    Failure, clock,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::Figure,
    own::Own,
    store::{Store, Sweeps, Table},
};

const NAME: &str = "long-life";

/// One process uses the name for a long time, and the other one uses new names. Both want the lock
/// while the row is watched, so neither of them sees all of its changes.
const PROCESSES: usize = 2;

/// The parts of the name's life, the number of further parts that are compared with a new name
/// each, and the rounds of a part.
const PARTS: usize = 20;
const COMPARED: usize = 5;
const ROUNDS: u32 = 2;

/// The number of tasks of each process that want the lock while the row is watched, and the time
/// for that.
const TASKS: usize = 16;
const WATCHED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(2);

/// The number of further names that are not used again until their rows are deleted.
const NAMES: usize = 300;

/// The limit for the clean-up, far above the time that it takes.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct LongLife;

impl Scenario for LongLife {
    fn profile(&self) -> Profile {
        Profile {
            main: Figure::Ageing,
            ..Profile::of_latency(NAME, "one name, taken again and again, and then left alone")
        }
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        if store.is_sql() { Ok(Vec::new()) } else { Err("its locks are no rows") }
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        super::leaves_uncounted(contestant)
    }

    fn count(
        &self,
        team: &mut Team,
        counter: &mut Counter<'_>,
        lasts: Duration,
    ) -> Result<Figures, Failure> {
        let mut server = counter.apart(Sweeps::Seldom)?;
        let mut table = counter.runtime.block_on(server.table())?;
        let mut counter = counter.at(&mut server);
        let mut users = counter.team(team.contestant.clone(), PROCESSES)?;
        let mut figures = live(&mut users, lasts * ROUNDS)?;
        let bytes = counter.runtime.block_on(table.bytes())?;
        figures.push((Figure::Table, bytes / 1024.0));
        figures.push((Figure::Row, watch(&mut users, counter.runtime, &mut table)?));
        drop(users);
        figures.extend(forget(&mut counter)?);
        Ok(figures)
    }
}

/// Uses the name again and again. Returns the median cycle of each part of its life, the number of
/// cycles, and the ratio of its median cycle to that of new names in further parts.
fn live(users: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
    let line = format!("uncontended {NAME}");
    users.one_task(lasts, &line)?;
    let (mut figures, mut cycles) = (Vec::new(), 0.0);
    for _ in 0..PARTS {
        let part = users.one_task(lasts, &line)?;
        figures.push((Figure::P50, of(&part, Figure::P50)));
        cycles += of(&part, Figure::Rate) * lasts.as_secs_f64();
    }
    figures.push((Figure::Cycles, cycles));
    // Both run at the same time, so that the disk and other work on the machine slow both down.
    for part in 0..COMPARED {
        let line = |place| if place == 0 { line.clone() } else { format!("{line}/new-{part}") };
        if let [old, new] = users.medians(lasts, line)?[..] {
            figures.push((Figure::Ageing, old / new));
        }
    }
    Ok(figures)
}

fn of(figures: &Figures, wanted: Figure) -> f64 {
    figures.iter().find(|(figure, _)| *figure == wanted).map_or(f64::NAN, |(_, value)| *value)
}

/// Returns the largest size of the row while one task holds the lock and the others wait for it.
fn watch(users: &mut Team, runtime: &Runtime, table: &mut Table) -> Result<f64, Failure> {
    let (contest, largest) = std::thread::scope(|scope| {
        let largest = scope.spawn(|| runtime.block_on(largest(table)));
        (users.contend(NAME, TASKS, Duration::ZERO, WATCHED), largest.join())
    });
    if contest?.all == 0.0 {
        return Err("no task got the lock while its row was watched".into());
    }
    largest.map_err(|_| "the watch of the row ended early")?
}

async fn largest(table: &mut Table) -> Result<f64, Failure> {
    let (start, mut largest) = (clock::now(), 0.0_f64);
    while clock::since(start) < WATCHED {
        largest = largest.max(table.largest().await?);
        tokio::time::sleep(LOOK).await;
    }
    Ok(largest)
}

/// Waits until the rows of unused names are deleted, and uses the names again.
fn forget(counter: &mut Counter<'_>) -> Result<Figures, Failure> {
    let mut users = counter.team(Contestant::forgetful(counter.server.store), 1)?;
    let before = tokens(&mut users)?;
    let (left, took) = counter.until_empty(CLEAN_UP_LIMIT)?;
    let again = tokens(&mut users)?;
    let stale = before.iter().zip(&again).filter(|(before, again)| again <= before).count();
    let mut figures = vec![(Figure::Left, left), (Figure::Stale, f64::from(u32::try_from(stale)?))];
    if left == 0.0 {
        figures.push((Figure::Gone, took.as_secs_f64()));
    }
    Ok(figures)
}

/// Returns the tokens of all names.
fn tokens(users: &mut Team) -> Result<Vec<u64>, Failure> {
    let answers = users.ask(|_| format!("tokens {NAME} {NAMES}"))?;
    let words = answers.iter().flat_map(|answer| answer.split_whitespace());
    let tokens: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>()?;
    match tokens.len() == NAMES + 1 {
        true => Ok(tokens),
        false => Err(format!("{} tokens of {} names", tokens.len(), NAMES + 1).into()),
    }
}
