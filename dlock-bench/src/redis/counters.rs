//! What the server has counted.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

use crate::Failure;

/// Counters of a server at one time: what `INFO` says.
#[derive(Debug)]
pub(crate) struct Counters(HashMap<String, f64>);

/// What was counted between two looks.
#[derive(Debug)]
pub(crate) struct Counted {
    before: Counters,
    after: Counters,
}

impl Counters {
    /// Looks, over a connection that is used for nothing else.
    pub(crate) async fn look(connection: &mut MultiplexedConnection) -> Result<Self, Failure> {
        let info: String = redis::cmd("INFO").arg("everything").query_async(connection).await?;
        Ok(Self::parse(&info))
    }

    /// What was counted since, with a look of its own.
    pub(crate) async fn since(
        self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Counted, Failure> {
        Ok(self.until(Self::look(connection).await?))
    }

    /// What was counted until another look.
    pub(crate) fn until(self, after: Self) -> Counted {
        Counted { before: self, after }
    }

    /// A value, or zero for a command that was never called.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// Seconds of processor time that the server has used.
    pub(crate) fn processor_time(&self) -> f64 {
        self.value("used_cpu_user") + self.value("used_cpu_sys")
    }

    fn parse(info: &str) -> Self {
        let mut values = HashMap::new();
        let mut insert = |name, value: &str| {
            if let Ok(value) = value.parse() {
                values.insert(name, value);
            }
        };
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            // `cmdstat_set:calls=3,usec=5,usec_per_call=1.67,...`
            if let Some((calls, rest)) =
                value.strip_prefix("calls=").and_then(|v| v.split_once(','))
            {
                let usec = rest.strip_prefix("usec=").and_then(|rest| rest.split(',').next());
                insert(name.to_owned(), calls);
                insert(format!("{name}.usec"), usec.unwrap_or_default());
            } else {
                insert(name.to_owned(), value);
            }
        }
        Self(values)
    }
}

impl Counted {
    /// How often the server read from a socket. A request that fits a packet is read at once, and
    /// whoever waits for the answer sends no other: so for one task, these are its round trips.
    pub(crate) fn reads(&self) -> f64 {
        // The second look was read too.
        self.of("total_reads_processed") - 1.0
    }

    /// Commands, also those that scripts called, without the looks.
    pub(crate) fn commands(&self) -> f64 {
        let names = self.after.0.keys();
        let calls = names.filter(|name| {
            name.starts_with("cmdstat_") && !name.ends_with(".usec") && *name != "cmdstat_info"
        });
        calls.map(|name| self.of(name)).sum()
    }

    /// Scripts that clients called.
    pub(crate) fn scripts(&self) -> f64 {
        self.of("cmdstat_evalsha") + self.of("cmdstat_eval")
    }

    /// Microseconds that the server spent in scripts.
    pub(crate) fn script_time(&self) -> f64 {
        self.of("cmdstat_evalsha.usec") + self.of("cmdstat_eval.usec")
    }

    /// Messages that were published.
    pub(crate) fn messages(&self) -> f64 {
        self.of("cmdstat_publish") + self.of("cmdstat_spublish")
    }

    /// Seconds of processor time that the server used.
    pub(crate) fn processor_time(&self) -> f64 {
        self.after.processor_time() - self.before.processor_time()
    }

    fn of(&self, name: &str) -> f64 {
        self.after.value(name) - self.before.value(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Stats\r\ntotal_reads_processed:10\r\n\r\n# CPU\r\nused_cpu_sys:0.5\r\n";
    const AFTER: &str = "total_reads_processed:15\r\nused_cpu_sys:0.75\r\nused_cpu_user:1.0\r\n\
        cmdstat_info:calls=2,usec=400,usec_per_call=200.00\r\n\
        cmdstat_evalsha:calls=4,usec=40,usec_per_call=10.00\r\n\
        cmdstat_set:calls=3,usec=3,usec_per_call=1.00\r\n";

    #[test]
    fn counts_what_came_between_without_the_looks() {
        let counted = Counted { before: Counters::parse(BEFORE), after: Counters::parse(AFTER) };
        assert_eq!(counted.reads(), 4.0);
        assert_eq!(counted.scripts(), 4.0);
        assert_eq!(counted.script_time(), 40.0);
        assert_eq!(counted.commands(), 7.0);
        assert_eq!(counted.messages(), 0.0);
        assert_eq!(counted.processor_time(), 1.25);
    }
}
