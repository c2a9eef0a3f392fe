//! Other scenarios over a network with a delay: a relay between each process and the server forwards
//! all bytes later.
//!
//! There the number of round trips matters more than the work of client and server, so the median is
//! also measured in round trips.

use std::time::Duration;

use super::{Profile, Scenario, crowd::HandOff, uncontended};
use crate::{
    Failure,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::Figure,
    own::Own,
    store::Store,
};

/// The delays of one way, with their names.
const DELAYS: [(&str, Duration); 3] = [
    ("250us", Duration::from_micros(250)),
    ("1ms", Duration::from_millis(1)),
    ("5ms", Duration::from_millis(5)),
];

/// The delay of a quick run.
const QUICK: Duration = Duration::from_millis(1);

/// The shortest round, in delays.
const ROUND: u32 = 200;

/// Returns the scenarios with all delays.
pub(super) fn all() -> impl Iterator<Item = Box<dyn Scenario>> {
    DELAYS.into_iter().flat_map(|(name, delay)| {
        let scenarios: [Box<dyn Scenario>; 3] = [
            Box::new(uncontended::Uncontended),
            Box::new(HandOff::over(delay)),
            Box::new(uncontended::Several),
        ];
        let over = move |scenario| Box::new(Network { name, delay, scenario }) as Box<dyn Scenario>;
        scenarios.map(over)
    })
}

/// A scenario over a network.
struct Network {
    name: &'static str,
    delay: Duration,
    scenario: Box<dyn Scenario>,
}

impl Scenario for Network {
    fn profile(&self) -> Profile {
        let Profile { name, about, main, is_awake, .. } = self.scenario.profile();
        Profile {
            name: format!("network-{}-{name}", self.name),
            about: format!("{about}; {} each way to the server", self.name),
            main,
            is_awake,
            is_long: self.delay != QUICK,
        }
    }

    fn processes(&self, store: Store, contestant: &Contestant) -> usize {
        self.scenario.processes(store, contestant)
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        match store {
            Store::Memory | Store::Sqlite => Err("it has no network"),
            store => self.scenario.baselines(store),
        }
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        self.scenario.rules_out(contestant)
    }

    fn delay(&self) -> Option<Duration> {
        Some(self.delay)
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        let mut figures = self.scenario.round(team, lasts.max(self.delay * ROUND))?;
        let p50 = figures.iter().find(|(figure, _)| *figure == Figure::P50);
        let trips = p50.map(|(_, p50)| p50 / trip(self.delay));
        figures.extend(trips.map(|trips| (Figure::Trips, trips)));
        Ok(figures)
    }
}

/// Returns the time of a round trip in microseconds.
fn trip(delay: Duration) -> f64 {
    2.0 * delay.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_delay_and_the_scenario() {
        let profiles: Vec<_> = all().map(|scenario| scenario.profile()).collect();
        let quick = profiles.iter().filter(|profile| !profile.is_long);
        let quick: Vec<_> = quick.map(|profile| profile.name.as_str()).collect();
        assert_eq!(quick, ["network-1ms-uncontended", "network-1ms-hand-off", "network-1ms-multi"]);
        assert_eq!(profiles.len(), 9);
        assert_eq!(trip(Duration::from_micros(250)), 500.0);
    }
}
