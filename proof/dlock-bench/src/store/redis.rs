//! The counters of a Redis server.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;

use crate::Failure;

/// The counters of a server at one time, from `INFO`.
#[derive(Debug)]
pub(crate) struct RedisCounters(HashMap<String, f64>);

/// The difference of two looks.
#[derive(Debug)]
pub(crate) struct RedisCounted {
    before: RedisCounters,
    after: RedisCounters,
}

impl RedisCounters {
    /// Reads the counters, over a connection that is used for nothing else.
    pub(crate) async fn look(connection: &mut MultiplexedConnection) -> Result<Self, Failure> {
        let info: String = redis::cmd("INFO").arg("everything").query_async(connection).await?;
        Ok(Self::parse(&info))
    }

    /// Returns the counts until another look.
    pub(crate) fn until(self, after: Self) -> RedisCounted {
        RedisCounted { before: self, after }
    }

    /// Returns a value, or zero for a command that was never called.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    fn parse(info: &str) -> Self {
        let mut values = HashMap::new();
        let mut insert = |name: &str, value: &str| {
            if let Ok(value) = value.parse() {
                values.insert(name.to_owned(), value);
            }
        };
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            // `cmdstat_set:calls=3,usec=5,usec_per_call=1.67,...`
            let calls = value.strip_prefix("calls=").and_then(|calls| calls.split(',').next());
            insert(name, calls.unwrap_or(value));
        }
        Self(values)
    }
}

impl RedisCounted {
    /// Returns the number of commands, including those of scripts and excluding the looks.
    pub(crate) fn commands(&self) -> f64 {
        let names = self.after.0.keys();
        let calls = names.filter(|name| name.starts_with("cmdstat_") && *name != "cmdstat_info");
        calls.map(|name| self.of(name)).sum()
    }

    fn of(&self, name: &str) -> f64 {
        self.after.value(name) - self.before.value(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Commandstats\r\ncmdstat_set:calls=2,usec=2,usec_per_call=1.00\r\n";
    const AFTER: &str = "# Memory\r\nused_memory:1024\r\n\
        cmdstat_info:calls=2,usec=400,usec_per_call=200.00\r\n\
        cmdstat_evalsha:calls=4,usec=40,usec_per_call=10.00\r\n\
        cmdstat_set:calls=3,usec=3,usec_per_call=1.00\r\n";

    #[test]
    fn counts_what_came_between_without_the_looks() {
        let counted = RedisCounters::parse(BEFORE).until(RedisCounters::parse(AFTER));
        assert_eq!(counted.commands(), 5.0);
        assert_eq!(counted.after.value("used_memory"), 1024.0);
    }
}
