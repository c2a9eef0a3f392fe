//! What all measurements over one store have in common.

use crate::{
    Failure,
    args::Args,
    processors::{Placed, Server},
    report::Report,
};

/// A private server of a store.
pub(crate) trait Store {
    /// Its address, as [`dlock::connect`] takes it.
    fn url(&self) -> String;

    /// The id of its first process.
    fn pid(&self) -> Option<u32>;

    /// The ids of its threads that a processor is chosen for; those that these start go with them.
    fn threads(&self) -> Vec<u32> {
        self.pid().into_iter().collect()
    }
}

/// A measurement over such servers.
pub(crate) type Measure<S> = fn(&mut Bench<'_, S>) -> Result<(), Failure>;

/// A measurement: its name, what it is about, and how.
pub(crate) type Measurement<S> = (&'static str, &'static str, Measure<S>);

/// What a measurement works with.
pub(crate) struct Bench<'a, S> {
    pub(crate) server: S,
    pub(crate) quick: bool,
    pub(crate) durable: bool,
    pub(crate) report: &'a mut Report,
}

impl<S: Store> Bench<'_, S> {
    /// Chooses the processor of the server.
    pub(crate) fn place(&self, place: Server) -> Result<Placed, Failure> {
        Placed::keep(&self.server.threads(), place)
    }

    /// How many rounds floor and dlock take in turns. Many short ones find more quiet moments than
    /// a few long ones.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 6 } else { 25 }
    }

    /// Takes those of the measurements that are asked for.
    pub(crate) fn take(
        &mut self,
        measurements: &[Measurement<S>],
        args: &Args,
    ) -> Result<(), Failure> {
        for (name, about, measure) in measurements {
            if args.wants(name) {
                self.report.title(&format!("{name}: {about}"));
                measure(self).map_err(|failure| format!("{name}: {failure}"))?;
            }
        }
        Ok(())
    }
}
