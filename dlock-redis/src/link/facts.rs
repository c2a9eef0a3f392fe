//! What a server says of itself when connecting, and whether it will do.

use std::{collections::HashMap, time::Duration};

use dlock_core::{ConfigIssue, Error, ErrorKind, Instant};

/// The oldest server that can be used: `SET` with `GET` came with it.
const OLDEST: (u32, u32) = (6, 2);
/// From this one on there are messages within a shard.
const SHARDED_PUSH: (u32, u32) = (7, 0);

/// What is known of a server. Users without the right to ask know little.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    version: Option<(u32, u32)>,
    /// When it started, by the clock of this process; not later.
    started: Option<Instant>,
    /// Whether it has every write on disk before it answers.
    pub(crate) durable: bool,
    /// How many replicas it has.
    pub(super) replicas: u32,
    pub(crate) replica: bool,
    pub(crate) loading: bool,
    cluster: Option<bool>,
    sentinel: bool,
    eviction: Option<String>,
    /// What its clock showed, in microseconds, and when that was, or earlier.
    time: Option<(u64, Instant)>,
}

impl Facts {
    /// Reads the answer to `INFO`, received at this time, and to `CONFIG GET appendfsync`.
    pub(crate) fn read(info: &str, fsync: Option<&str>, received: Instant) -> Self {
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim().split_once(':')).collect();
        let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
        let started = number("uptime_in_seconds")
            .map(|seconds| received.saturating_sub(Duration::from_secs(seconds.saturating_sub(1))));
        Self {
            version: fields.get("redis_version").and_then(|text| version(text)),
            started,
            durable: number("aof_enabled") == Some(1) && fsync == Some("always"),
            replicas: number("connected_slaves")
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            replica: fields.get("role") == Some(&"slave"),
            loading: number("loading") == Some(1),
            cluster: number("cluster_enabled").map(|enabled| enabled == 1),
            sentinel: fields.get("redis_mode") == Some(&"sentinel"),
            time: None,
            eviction: fields.get("maxmemory_policy").map(|policy| (*policy).to_owned()),
        }
    }

    /// With what its clock showed, in microseconds, at this time or later.
    pub(crate) fn with_time(mut self, micros: Option<u64>, at: Instant) -> Self {
        self.time = micros.map(|micros| (micros, at));
        self
    }

    /// What its clock shows now, about, in microseconds; zero when it is not known.
    pub(crate) fn time_at(&self, now: Instant) -> u64 {
        self.time.map_or(0, |(micros, at)| {
            micros.saturating_add(u64::try_from(now.since(at).as_micros()).unwrap_or(0))
        })
    }

    /// Until when nothing may be granted if a restart is to be outlasted by this.
    pub(crate) fn guarded_until(&self, guard: Duration) -> Instant {
        match self.started {
            Some(started) if !self.durable => started.saturating_add(guard),
            _ => Instant::from_nanos(0),
        }
    }

    /// Whether a script can send a message to subscribers of its own shard.
    pub(crate) fn has_sharded_push(&self) -> bool {
        self.version.is_none_or(|version| version >= SHARDED_PUSH)
    }

    /// Refuses a server that can't be used, and warns of one that may lose locks.
    pub(crate) fn check(&self, wants_cluster: bool, store: &str) -> Result<(), Error> {
        if let Some(found) = self.version
            && found < OLDEST
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the server is version {}.{}, and {}.{} is needed: upgrade Redis, or use Valkey",
                    found.0, found.1, OLDEST.0, OLDEST.1
                ),
            ));
        }
        if self.sentinel {
            return Err(Error::config(
                ConfigIssue::Url,
                "the server is a sentinel: use redis+sentinel://host/master instead of redis://",
            ));
        }
        match (self.cluster, wants_cluster) {
            (Some(true), false) => Err(Error::config(
                ConfigIssue::Url,
                "the server is a node of a cluster: use redis+cluster:// instead of redis://",
            )),
            (Some(false), true) => Err(Error::config(
                ConfigIssue::Url,
                "the server is not a node of a cluster: use redis:// instead of redis+cluster://",
            )),
            _ => {
                self.warn(store);
                Ok(())
            }
        }
    }

    /// How many replicas it has.
    pub(crate) fn replicas(&self) -> Result<u32, Error> {
        if self.started.is_none() {
            return Err(Error::config(
                ConfigIssue::Access,
                "dlock.durability=majority needs to know how many replicas there are, and this \
                 user may not ask: allow +info, or give a number",
            ));
        }
        Ok(self.replicas)
    }

    /// A restart guard needs to know when the server started.
    pub(crate) fn check_guard(&self, guard: Duration) -> Result<(), Error> {
        if guard.is_zero() || self.started.is_some() {
            return Ok(());
        }
        Err(Error::config(
            ConfigIssue::Access,
            "dlock.restart_guard needs to know when the server started, and this user may not ask: \
             allow +info, or set dlock.restart_guard=0s",
        ))
    }

    fn warn(&self, store: &str) {
        if let Some(policy) = &self.eviction
            && policy != "noeviction"
        {
            tracing::warn!(
                target: "dlock",
                store,
                policy,
                "this server may evict the keys of held locks when memory is short: set \
                 maxmemory-policy noeviction, or give the locks a server of their own"
            );
        }
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(info: &str) -> Facts {
        Facts::read(info, None, Instant::from_nanos(10_000_000_000))
    }

    #[test]
    fn an_old_server_is_refused_with_both_versions() {
        let error = facts("redis_version:5.0.14\r\n").check(false, "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("5.0") && error.to_string().contains("6.2"), "{error}");
        assert!(facts("redis_version:6.2.0\r\n").check(false, "x").is_ok());
        assert!(facts("").check(false, "x").is_ok(), "a user who may not ask is let in");
    }

    #[test]
    fn the_wrong_kind_of_server_names_the_right_scheme() {
        let error = facts("cluster_enabled:1\r\n").check(false, "x").unwrap_err();
        assert!(error.to_string().contains("redis+cluster://"), "{error}");
        assert!(facts("cluster_enabled:0\r\n").check(true, "x").is_err());
        let error = facts("redis_mode:sentinel\r\n").check(false, "x").unwrap_err();
        assert!(error.to_string().contains("redis+sentinel://"), "{error}");
    }

    #[test]
    fn a_server_that_writes_everything_down_needs_no_guard() {
        let guard = Duration::from_secs(5);
        let young = "uptime_in_seconds:3\r\naof_enabled:1\r\n";
        let at = Instant::from_nanos(10_000_000_000);
        // The server counts whole seconds of its wall clock, the first of which may be a short one.
        assert_eq!(facts(young).guarded_until(guard).since(at), Duration::from_secs(3));
        let durable = Facts::read(young, Some("always"), at);
        assert_eq!(durable.guarded_until(guard).since(at), Duration::ZERO);
    }
}
