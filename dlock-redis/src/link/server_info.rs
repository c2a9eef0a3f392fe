//! The information that a server returns about itself at a connect, and the checks of it.
//!
//! The guarantees are derived from it. A value that is not known counts as the worse one: a
//! server that hides its settings may evict keys and lose writes. Each connection has its own
//! information, since another connection may lead to another server, or to another run of the same
//! server.

use std::{collections::HashMap, time::Duration};

use dlock_core::{ConfigIssue, Error, ErrorKind, Instant, StoreClock};

use crate::reply;

/// The oldest server that can be used. [`LACKING`] lists the features that came with it.
pub(crate) const OLDEST: (u32, u32) = (7, 0);
/// The features that an older server lacks. It also hides the code of an error within a script, so
/// a replica or a full server would look like a user without rights.
pub(crate) const LACKING: &str = "sharded pub/sub, and error codes within scripts";

/// The questions that dlock does not ask a server, because the server refused them before or
/// because nothing depends on the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SkippedQueries {
    pub(crate) info: bool,
    pub(crate) settings: bool,
}

/// The information about a server. A user without the right to read it gets little of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerInfo {
    version: Option<(u32, u32)>,
    /// Whether it has answered `INFO`.
    answered: bool,
    /// The run id and the replication id. It changes with each start, and after the server was a
    /// replica, which discards its data.
    pub(crate) run_id: Option<String>,
    /// The least time that it has run, according to the mark of another client.
    pub(super) proven_uptime: Duration,
    /// A time after its answer.
    pub(super) received: Option<Instant>,
    /// Whether it has every write on disk before it answers, even during a rewrite of the AOF.
    durable: bool,
    /// Whether it rewrites its AOF, or is about to. If the AOF was switched on just now, nothing is
    /// on disk until the rewrite is done.
    rewrites: bool,
    refuses: SkippedQueries,
    /// Whether it evicts keys when memory is short.
    evicts: bool,
    /// How many replicas it has.
    pub(super) replicas: u32,
    pub(crate) replica: bool,
    pub(crate) loading: bool,
    cluster: Option<bool>,
    sentinel: bool,
    eviction: Option<String>,
    /// A time of its clock, in microseconds, and an earlier time of this client's clock.
    time: Option<(u64, Instant)>,
}

impl ServerInfo {
    /// Reads the answer to `INFO`, received at this time, and the settings.
    pub(crate) fn read(info: &str, settings: &HashMap<String, String>, received: Instant) -> Self {
        let fields = reply::fields(info);
        let number = |name: &str| fields.get(name).and_then(|text| text.parse::<u64>().ok());
        let says = |name: &str, value: &str| fields.get(name).is_some_and(|says| says == value);
        let is = |setting: &str, value: &str| settings.get(setting).is_some_and(|is| is == value);
        let policy = fields.get("maxmemory_policy");
        // The replication id is part of the id, since a server that was a replica has discarded its
        // data without a new run id.
        let replid = fields.get("master_replid").filter(|id| !id.is_empty());
        Self {
            version: fields.get("redis_version").and_then(|text| version(text)),
            answered: !fields.is_empty(),
            run_id: fields.get("run_id").filter(|id| !id.is_empty()).map(|id| match replid {
                Some(replid) => format!("{id}-{replid}"),
                None => id.clone(),
            }),
            proven_uptime: Duration::ZERO,
            received: Some(received),
            // A missing field counts as the worse value.
            durable: number("aof_enabled") == Some(1)
                && says("aof_last_write_status", "ok")
                && is("appendfsync", "always")
                && is("no-appendfsync-on-rewrite", "no"),
            // A missing field counts as a rewrite in progress.
            rewrites: ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
                .into_iter()
                .any(|field| number(field) != Some(0)),
            refuses: SkippedQueries::default(),
            evicts: policy.is_none_or(|policy| policy != "noeviction")
                && number("maxmemory") != Some(0),
            replicas: number("connected_slaves")
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            replica: says("role", "slave"),
            loading: number("loading") == Some(1),
            cluster: number("cluster_enabled").map(|enabled| enabled == 1),
            // The first is Redis, the second Valkey.
            sentinel: ["redis_mode", "server_mode"].into_iter().any(|mode| says(mode, "sentinel")),
            time: None,
            eviction: policy.cloned(),
        }
    }

    /// Adds the time that its clock showed, in microseconds, at this time or later.
    pub(crate) fn with_time(mut self, micros: Option<u64>, at: Instant) -> Self {
        self.time = micros.map(|micros| (micros, at));
        self
    }

    /// Returns the approximate time of its clock, in microseconds, or zero if it is not known.
    pub(crate) fn time_at(&self, now: Instant) -> u64 {
        self.time.map_or(0, |(micros, at)| {
            micros.saturating_add(u64::try_from(now.since(at).as_micros()).unwrap_or(0))
        })
    }

    /// Returns the last known state of its clock.
    pub(super) fn clock(&self) -> StoreClock {
        let mut clock = StoreClock::new();
        if let (Some((micros, sent)), Some(received)) = (self.time, self.received) {
            clock.observe(micros, sent, received);
        }
        clock
    }

    /// Adds the mark that a client has written. See [`uptime`](super::uptime).
    pub(crate) fn with_mark(mut self, mark: Option<&str>) -> Self {
        // The mark of another run, which a restored file may contain, says nothing about this one.
        if let Some((run_id, millis)) = mark.and_then(|mark| mark.split_once(' '))
            && self.run_id.as_deref() == Some(run_id)
        {
            self.proven_uptime = Duration::from_millis(millis.parse().unwrap_or(0));
        }
        self
    }

    /// Adds the questions that it refuses.
    pub(crate) const fn refusing(mut self, refuses: SkippedQueries) -> Self {
        self.refuses = refuses;
        self
    }

    /// Adds what was known before. If the AOF of the same run was complete, a rewrite
    /// does not change that.
    pub(crate) fn after(mut self, before: &Self) -> Self {
        self.rewrites &= !(before.is_on_disk() && before.run_id == self.run_id);
        self
    }

    fn is_on_disk(&self) -> bool {
        self.durable && !self.rewrites
    }

    /// Returns whether its grants survive a restart, with this restart guard.
    pub(crate) fn keeps_grants(&self, guard: Duration) -> bool {
        !self.evicts && (self.is_on_disk() || !guard.is_zero())
    }

    /// Returns the questions to leave out of the next read, or `None` if no answer could change a
    /// guarantee.
    pub(super) fn next_queries(&self, guard: Duration) -> Option<SkippedQueries> {
        // `INFO` is needed in any case. The settings matter only without a guard: with one, grants
        // survive a restart whatever is on disk.
        let is_answered = !(self.refuses.info || guard.is_zero() && self.refuses.settings);
        is_answered.then_some(self.refuses)
    }

    /// Refuses a server that can't be used, and warns of one that may lose locks.
    pub(crate) fn check(&self, wants_cluster: bool, store: &str) -> Result<(), Error> {
        if let Some(found) = self.version
            && found < OLDEST
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the server is version {}.{}, and {}.{} is needed, because older ones lack \
                     {LACKING}: upgrade Redis, or use Valkey",
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

    /// Checks that it reports the number of its replicas.
    pub(crate) fn check_replicas(&self) -> Result<(), Error> {
        if self.answered {
            return Ok(());
        }
        Err(Error::config(
            ConfigIssue::Access,
            "dlock.durability=majority needs the number of replicas, which the server does not \
             report to this user: allow +info, or set a number",
        ))
    }

    /// Checks that one start of the server can be distinguished from the next, if there is a guard.
    pub(crate) fn check_guard(&self, guard: Duration) -> Result<(), Error> {
        // Without a run id, a restart between two connections would not be noticed.
        if guard.is_zero() || self.run_id.is_some() {
            return Ok(());
        }
        Err(Error::config(
            ConfigIssue::Access,
            "dlock.restart_guard needs the server's run_id, which the server does not report to \
             this user: allow +info, or set dlock.restart_guard=0s",
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
                "server may evict keys of held locks under memory pressure: set maxmemory-policy \
                 noeviction, or use a dedicated server for locks"
            );
        }
    }
}

/// Returns the first two numbers of a version.
pub(crate) fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_info(info: &str) -> ServerInfo {
        ServerInfo::read(info, &HashMap::new(), Instant::from_nanos(10_000_000_000))
    }

    #[test]
    fn an_old_server_is_refused_with_both_versions() {
        for (version, short) in [("5.0.14", "5.0"), ("6.2.19", "6.2")] {
            for wants_cluster in [false, true] {
                let answered = server_info(&format!("redis_version:{version}\r\n"));
                let error = answered.check(wants_cluster, "x").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                for part in [short, "7.0 is needed", LACKING] {
                    assert!(error.to_string().contains(part), "{error}");
                }
            }
        }
        assert!(server_info("redis_version:7.0.0\r\n").check(false, "x").is_ok());
        assert!(
            server_info("").check(false, "x").is_ok(),
            "a user without the right to INFO can connect"
        );
    }

    #[test]
    fn the_wrong_kind_of_server_names_the_right_scheme() {
        let error = server_info("cluster_enabled:1\r\n").check(false, "x").unwrap_err();
        assert!(error.to_string().contains("redis+cluster://"), "{error}");
        assert!(server_info("cluster_enabled:0\r\n").check(true, "x").is_err());
        for mode in ["redis_mode", "server_mode"] {
            let error = server_info(&format!("{mode}:sentinel\r\n")).check(false, "x").unwrap_err();
            assert!(error.to_string().contains("redis+sentinel://"), "{error}");
        }
    }

    const GUARD: Duration = Duration::from_secs(5);

    fn set(info: &str, settings: &[(&str, &str)]) -> ServerInfo {
        let pairs = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        ServerInfo::read(info, &pairs.collect(), Instant::from_nanos(0))
    }

    #[test]
    fn a_guarantee_needs_each_of_its_settings() {
        let kept = "aof_enabled:1\r\naof_last_write_status:ok\r\n\
                    aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n\
                    maxmemory:0\r\nmaxmemory_policy:noeviction\r\n";
        let (always, sync) = (("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no"));
        let keeps = |info: &str, settings: &[_]| {
            let server_info = set(info, settings);
            (server_info.keeps_grants(Duration::ZERO), server_info.keeps_grants(GUARD))
        };
        assert_eq!(keeps(kept, &[always, sync]), (true, true));
        let lazy = ("no-appendfsync-on-rewrite", "yes");
        for settings in
            [&[always, lazy][..], &[always], &[sync], &[], &[("appendfsync", "everysec"), sync]]
        {
            assert_eq!(keeps(kept, settings), (false, true), "{settings:?}");
        }
        for (field, other, expected) in [
            ("aof_enabled:1", "aof_enabled:0", (false, true)),
            ("aof_enabled:1", "", (false, true)),
            // Data from before the AOF was switched on is not on disk yet.
            ("in_progress:0", "in_progress:1", (false, true)),
            ("scheduled:0", "scheduled:1", (false, true)),
            ("aof_rewrite_in_progress:0", "", (false, true)),
            ("aof_last_write_status:ok\r\n", "", (false, true)),
            ("maxmemory:0\r\nmaxmemory_policy:noeviction", "", (false, false)),
            ("status:ok", "status:err", (false, true)),
            ("noeviction", "allkeys-lru", (true, true)),
            (
                "maxmemory:0\r\nmaxmemory_policy:no",
                "maxmemory:9\r\nmaxmemory_policy:no",
                (true, true),
            ),
            (
                "maxmemory:0\r\nmaxmemory_policy:noeviction",
                "maxmemory:9\r\nmaxmemory_policy:allkeys-lru",
                (false, false),
            ),
            (
                "maxmemory:0\r\nmaxmemory_policy:noeviction",
                "maxmemory_policy:allkeys-lru",
                (false, false),
            ),
        ] {
            let info = kept.replace(field, other);
            assert_eq!(keeps(&info, &[always, sync]), expected, "{info}");
        }
    }

    #[test]
    fn a_rewrite_does_not_change_what_is_on_disk() {
        let info = |run_id, rewrites| {
            format!(
                "run_id:{run_id}\r\naof_enabled:1\r\naof_last_write_status:ok\r\n\
                 aof_rewrite_in_progress:{rewrites}\r\naof_rewrite_scheduled:0\r\n\
                 maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
            )
        };
        let settings = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        let server_info = |run_id, rewrites| set(&info(run_id, rewrites), &settings);
        let keeps = |server_info: &ServerInfo| server_info.keeps_grants(Duration::ZERO);
        let (before, unsure) = (server_info("a", 0), server_info("a", 1));
        assert!(keeps(&before) && !keeps(&unsure));
        let during = server_info("a", 1).after(&before);
        assert!(keeps(&during) && keeps(&server_info("a", 1).after(&during)));
        assert!(!keeps(&server_info("a", 1).after(&unsure)));
        assert!(!keeps(&server_info("b", 1).after(&before)), "another run");
        assert!(keeps(&server_info("a", 0).after(&unsure)));
    }

    #[test]
    fn a_refused_query_is_not_sent_again() {
        let info = SkippedQueries { info: true, settings: false };
        let settings = SkippedQueries { info: false, settings: true };
        let ask = |refuses, guard| server_info("").refusing(refuses).next_queries(guard);
        assert_eq!(ask(SkippedQueries::default(), Duration::ZERO), Some(SkippedQueries::default()));
        assert_eq!(ask(settings, GUARD), Some(settings));
        assert_eq!(ask(settings, Duration::ZERO), None);
        assert_eq!(ask(info, GUARD), None);
    }

    #[test]
    fn a_mark_counts_for_one_run_of_a_server() {
        let server_info = || set("run_id:abc\r\nuptime_in_seconds:99999\r\n", &[]);
        let proven_uptime = |mark| server_info().with_mark(mark).proven_uptime;
        assert_eq!(proven_uptime(Some("abc 5000")), GUARD);
        for mark in [None, Some("abd 5000"), Some("abc"), Some("abc -1"), Some("")] {
            assert_eq!(proven_uptime(mark), Duration::ZERO, "{mark:?}");
        }
        // It was a replica meanwhile, and received the mark again from its master.
        let again = set("run_id:abc\r\nmaster_replid:2\r\n", &[]);
        assert_eq!(again.clone().with_mark(Some("abc-1 5000")).proven_uptime, Duration::ZERO);
        assert_eq!(again.with_mark(Some("abc-2 5000")).proven_uptime, GUARD);
        let unknown = set("uptime_in_seconds:99999\r\n", &[]).with_mark(Some(" 5000"));
        assert_eq!(unknown.proven_uptime, Duration::ZERO);
    }

    #[test]
    fn a_negative_uptime_is_no_reason_to_refuse_a_server() {
        let server_info = set("run_id:abc\r\nuptime_in_seconds:-3599\r\n", &[]);
        assert!(server_info.check_guard(GUARD).is_ok() && server_info.check_replicas().is_ok());
    }
}
