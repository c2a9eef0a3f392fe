//! The processes of one contestant in a scenario.

use std::time::Duration;

use super::{Crew, Hold, Holds, contestant::Contestant, relays::Relays, span};
use crate::{
    Failure,
    figures::{Figure, fairness},
    own::{Flavour, Own},
    store::Server,
    usage::Usage,
};

/// The line for a process that has no work in a round.
const IDLE: &str = "spread idle 0";

/// The figures of one round.
pub(crate) type Figures = Vec<(Figure, f64)>;

/// The processes of one contestant.
pub(crate) struct Team {
    pub(crate) contestant: Contestant,
    crew: Crew,
    clients: Vec<Usage>,
    server: Option<Usage>,
    round: usize,
    /// The network of the processes, if it is not the loopback interface alone.
    pub(crate) relays: Option<Relays>,
}

/// The results of clients that wanted one lock.
#[derive(Debug)]
pub(crate) struct Contest {
    /// The holds within the time of the run.
    pub(crate) holds: Holds,
    /// The number of holds, including those of tasks that still waited at the end of the time.
    pub(crate) all: f64,
    /// The processor time for all holds.
    pub(crate) spent: Spent,
}

/// Processor seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) clients: f64,
    /// Not a number if there is no server.
    pub(crate) server: f64,
}

impl Team {
    /// Starts `size` processes on a server, each over its relay if there are relays.
    pub(crate) fn start(
        contestant: Contestant,
        server: &Server,
        size: usize,
        flavour: Flavour,
        relays: Option<Relays>,
    ) -> Result<Self, Failure> {
        let crew = contestant.start(server, size, flavour, relays.as_ref())?;
        let clients = crew.pids().into_iter().map(|pid| Usage::of(Some(pid)));
        let clients = clients.collect::<Result<_, _>>()?;
        // A contestant without requests to the server causes none of its processor time.
        let asked = if contestant.own() == Some(Own::Tokio) { None } else { server.pid() };
        let server = asked.map(|pid| Usage::of(Some(pid))).transpose()?;
        Ok(Self { contestant, crew, clients, server, round: 0, relays })
    }

    /// Returns the id of the first process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pids().first().copied()
    }

    /// Returns the ids of all processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.crew.pids()
    }

    /// Sends the first process a line, whose answer has to be read later.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Failure> {
        self.crew.first()?.say(line)
    }

    /// Returns the answer of the first process.
    pub(crate) fn answer(&mut self) -> Result<String, Failure> {
        self.crew.first()?.answer()
    }

    /// Returns a name that no earlier round used. A task that was dropped while it waited may still
    /// get the lock of an earlier name.
    pub(crate) fn fresh_name(&mut self, scenario: &str) -> String {
        self.round += 1;
        format!("{scenario}/{}", self.round)
    }

    /// Sends each process its line, and returns the answers.
    pub(crate) fn ask(&mut self, line: impl Fn(usize) -> String) -> Result<Vec<String>, Failure> {
        self.crew.ask(line)
    }

    /// Makes each process run the work of its line for this time. Returns the answers and the cost.
    fn work(
        &mut self,
        lasts: Duration,
        line: impl Fn(usize) -> String,
    ) -> Result<(Vec<String>, Spent), Failure> {
        self.crew.ask(line)?;
        let before = self.spent();
        let (from, until) = span(lasts);
        let answers = self.crew.ask(|_| format!("go {from} {until}"))?;
        Ok((answers, self.spent().since(before)))
    }

    /// Runs one task in the first process. Returns the median, the 99th percentile and the number
    /// of its cycles, and their cost.
    pub(crate) fn one_task(&mut self, lasts: Duration, line: &str) -> Result<Figures, Failure> {
        let line = |place| if place == 0 { line } else { IDLE };
        let (answers, spent) = self.work(lasts, |place| line(place).to_owned())?;
        let values = numbers(&answers)?;
        let [p50, p99, cycles] = values[..] else {
            return Err("it tells no latency".into());
        };
        let mut figures = vec![
            (Figure::P50, p50 / 1e3),
            (Figure::P99, p99 / 1e3),
            (Figure::Rate, cycles / lasts.as_secs_f64()),
        ];
        figures.extend(spent.each(cycles));
        Ok(figures)
    }

    /// Runs one task in each process at the same time. Returns the median of each, in microseconds.
    pub(crate) fn medians(
        &mut self,
        lasts: Duration,
        line: impl Fn(usize) -> String,
    ) -> Result<Vec<f64>, Failure> {
        let (answers, _) = self.work(lasts, line)?;
        let medians = answers.iter().map(|answer| {
            let p50 = answer.split_whitespace().next().ok_or("it tells no latency")?;
            Ok(p50.parse::<f64>()? / 1e3)
        });
        medians.collect()
    }

    /// Runs all tasks of all processes. Returns the number of completed cycles, and their cost.
    pub(crate) fn counts(
        &mut self,
        lasts: Duration,
        line: impl Fn(usize) -> String,
    ) -> Result<Figures, Failure> {
        let (answers, spent) = self.work(lasts, line)?;
        let words = answers.iter().flat_map(|answer| answer.split_whitespace());
        let counts: Vec<u32> = words.map(str::parse).collect::<Result<_, _>>()?;
        let cycles: f64 = counts.iter().copied().map(f64::from).sum();
        let mut figures = vec![
            (Figure::Rate, cycles / lasts.as_secs_f64()),
            (Figure::Fairness, fairness(&counts)),
        ];
        figures.extend(spent.each(cycles));
        Ok(figures)
    }

    /// Runs `tasks` tasks that use each name once. Returns the number of completed names, and their
    /// cost.
    pub(crate) fn once(&mut self, tasks: u32, lasts: Duration) -> Result<Figures, Failure> {
        let name = self.fresh_name("once");
        let before = self.spent();
        let (from, until) = span(lasts);
        let answers = self.crew.ask(|_| format!("once {name} {tasks} {from} {until}"))?;
        let spent = self.spent().since(before);
        let cycles: f64 = numbers(&answers)?.iter().sum();
        let mut figures = vec![(Figure::Rate, cycles / lasts.as_secs_f64())];
        figures.extend(spent.each(cycles));
        Ok(figures)
    }

    /// Runs tasks in each process that want one lock.
    pub(crate) fn contend(
        &mut self,
        name: &str,
        tasks: usize,
        hold: Duration,
        lasts: Duration,
    ) -> Result<Contest, Failure> {
        self.compete(&format!("contend {name} {tasks} {}", hold.as_micros()), tasks, lasts)
    }

    /// Runs tasks in each process that want one lock once each. Ends when all have had it, or after
    /// this time.
    pub(crate) fn queue(
        &mut self,
        name: &str,
        tasks: usize,
        limit: Duration,
    ) -> Result<Contest, Failure> {
        self.compete(&format!("queue {name} {tasks}"), tasks, limit)
    }

    fn compete(&mut self, line: &str, tasks: usize, lasts: Duration) -> Result<Contest, Failure> {
        self.crew.ask(|_| line.to_owned())?;
        let before = self.spent();
        let (from, until) = span(lasts);
        let answers = self.crew.ask(|_| format!("go {from} {until}"))?;
        let spent = self.spent().since(before);
        let (mut holds, mut all) = (Vec::new(), 0.0);
        for (process, line) in answers.iter().enumerate() {
            for word in line.split_whitespace() {
                let hold = Hold::parse(process, word)?;
                all += 1.0;
                if hold.got <= until {
                    holds.push(hold);
                }
            }
        }
        Ok(Contest { holds: Holds::new(holds, self.crew.size(), tasks)?, all, spent })
    }

    /// Sends a message around the ring; each place keeps it for a while. Returns the time of each step.
    pub(crate) fn ring(
        &mut self,
        hold: Duration,
        lasts: Duration,
    ) -> Result<Vec<Duration>, Failure> {
        let (size, hold) = (self.crew.size(), hold.as_micros());
        self.crew.ask(|place| format!("join {place}"))?;
        let (from, until) = span(lasts);
        let answers = self
            .crew
            .ask(|place| format!("ring {place} {} {hold} {from} {until}", (place + 1) % size))?;
        let took = answers.iter().flat_map(|line| line.split_whitespace());
        took.map(|nanos| Ok(Duration::from_nanos(nanos.parse()?))).collect()
    }

    /// Returns the processor time so far.
    pub(crate) fn spent(&mut self) -> Spent {
        let clients = self.clients.iter_mut().map(Usage::seconds).sum();
        Spent { clients, server: self.server.as_mut().map_or(f64::NAN, Usage::seconds) }
    }
}

impl Spent {
    /// Returns the processor time since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { clients: self.clients - before.clients, server: self.server - before.server }
    }

    /// Returns the seconds per million cycles.
    pub(crate) fn each(self, cycles: f64) -> Figures {
        let each = |seconds: f64| seconds * 1e6 / cycles;
        vec![(Figure::ClientTime, each(self.clients)), (Figure::ServerTime, each(self.server))]
    }
}

/// Returns all numbers of all answers.
pub(crate) fn numbers(answers: &[String]) -> Result<Vec<f64>, Failure> {
    let words = answers.iter().flat_map(|answer| answer.split_whitespace());
    words.map(|word| Ok(word.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_answers_are_read() {
        let answers = ["1 2 ".to_owned(), "3".to_owned()];
        assert_eq!(numbers(&answers).unwrap(), [1.0, 2.0, 3.0]);
        assert!(numbers(&["one".to_owned()]).is_err());
    }
}
