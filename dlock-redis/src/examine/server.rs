//! The findings about a server, from its own answers.

use std::{collections::HashMap, time::Duration};

use dlock_core::Finding;

use crate::link::server_info::{LACKING, OLDEST, version};

/// A replica that has not answered its master for this many seconds gets a finding.
const LAG: u64 = 10;

/// A master that continues to grant locks for longer than this without its replicas gets a finding,
/// in seconds. This is the default lease.
const PARTITIONED: u64 = 30;

/// The answers of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerReport {
    /// The fields of `INFO`, if it answers.
    pub(super) info: Option<HashMap<String, String>>,
    /// The settings that it returns.
    pub(super) settings: HashMap<String, String>,
    /// Its clock, since 1970.
    pub(super) time: Option<Duration>,
    pub(super) may_scan: bool,
}

/// The requirements on a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    /// The number of replicas that must have a grant.
    pub(super) replicas: u32,
    /// The restart guard.
    pub(super) guard: Duration,
    pub(super) is_cluster: bool,
    pub(super) has_sentinels: bool,
}

impl ServerReport {
    pub(super) fn findings(&self, wants: &Wants) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.info.is_some() {
            findings.push(self.version());
            findings.push(self.role());
            findings.push(self.eviction());
            findings.push(self.persistence(wants));
            findings.extend(self.replication(wants));
        } else {
            findings.push(Finding::warning(
                "server",
                "it does not report its version, its role, its eviction policy and its persistence",
                "give this user the right (ACL SETUSER name +info), or run INFO as another user",
            ));
        }
        findings.extend(self.time.map(Finding::clock));
        findings.push(self.listing());
        findings.extend(self.connections());
        findings
    }

    fn field(&self, name: &str) -> &str {
        self.info.as_ref().and_then(|info| info.get(name)).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }

    fn version(&self) -> Finding {
        // Valkey also reports the version of Redis with which it is compatible.
        let (product, text) = match self.field("valkey_version") {
            "" => ("Redis", self.field("redis_version")),
            valkey => ("Valkey", valkey),
        };
        let found = format!("{product} {text:.40}");
        match version(text).unwrap_or_default() >= OLDEST {
            true => Finding::fine("version", found),
            false => Finding::wrong(
                "version",
                format!("{found}, which lacks {LACKING}"),
                "upgrade it to Redis 7.0 or later, or to Valkey",
            ),
        }
    }

    fn role(&self) -> Finding {
        match self.field("role") {
            "slave" => Finding::wrong(
                "role",
                "it is a replica, which accepts no writes",
                "give the address of the master, or use redis+sentinel:// or redis+cluster://, \
                 which find it",
            ),
            "master" => Finding::fine("role", "it is a master"),
            _ => Finding::warning(
                "role",
                "it does not report its role",
                "run ROLE as another user, and give the address of the master",
            ),
        }
    }

    fn eviction(&self) -> Finding {
        let (policy, most) = (self.field("maxmemory_policy"), self.number("maxmemory"));
        let remedy = "run CONFIG SET maxmemory-policy noeviction, and write it into redis.conf; or \
                      use a separate server for the locks";
        match policy {
            "noeviction" => Finding::fine("eviction", "maxmemory-policy is noeviction"),
            "" => Finding::warning("eviction", "it does not report its maxmemory-policy", remedy),
            _ if most > 0 => Finding::wrong(
                "eviction",
                format!("maxmemory-policy {policy:.40} evicts held locks when memory is short"),
                remedy,
            ),
            _ => Finding::warning(
                "eviction",
                format!("maxmemory-policy {policy:.40} would evict held locks, with a maxmemory"),
                remedy,
            ),
        }
    }

    fn persistence(&self, wants: &Wants) -> Finding {
        let setting = |name| self.settings.get(name).map(String::as_str);
        let (aof, fsync) = (self.number("aof_enabled") == 1, setting("appendfsync"));
        let fails = !["", "ok"].contains(&self.field("aof_last_write_status"));
        let guarded = !wants.guard.is_zero();
        let found = match (aof, fsync, setting("no-appendfsync-on-rewrite")) {
            (true, Some("always"), Some("no")) if !fails => {
                return Finding::fine(
                    "persistence",
                    "every write is on disk before it is answered",
                );
            }
            _ if guarded => {
                return Finding::fine(
                    "persistence",
                    format!(
                        "a restart may lose locks, so nothing is granted for {:?} after one \
                         (restart_guard)",
                        wants.guard
                    ),
                );
            }
            (true, ..) if fails => {
                "a crash may lose the last grants (aof_last_write_status is not ok)".to_owned()
            }
            (true, Some("always"), Some("yes")) => "a crash may lose the last grants while the \
                                                    server rewrites or saves its data \
                                                    (no-appendfsync-on-rewrite yes)"
                .to_owned(),
            (true, Some("always") | None, _) => "it does not report whether a crash may lose \
                                                 grants (appendfsync, no-appendfsync-on-rewrite)"
                .to_owned(),
            (true, Some(fsync), _) => {
                format!("a crash may lose the last grants (appendfsync {fsync:.20})")
            }
            (false, ..) => "a restart loses locks that are held (appendonly no)".to_owned(),
        };
        Finding::warning(
            "persistence",
            found,
            "set dlock.restart_guard to the longest lease in use, such as 30s, on every client; or \
             run CONFIG SET appendonly yes, CONFIG SET appendfsync always and CONFIG SET \
             no-appendfsync-on-rewrite no, and write all three into redis.conf",
        )
    }

    fn replication(&self, wants: &Wants) -> Vec<Finding> {
        let replicas: Vec<Replica> =
            (0..64).map_while(|at| Replica::read(self.field(&format!("slave{at}")))).collect();
        let online = replicas.iter().filter(|replica| replica.online).count();
        let mut findings = Vec::new();
        if online < usize::try_from(wants.replicas).unwrap_or(usize::MAX) {
            findings.push(Finding::wrong(
                "replication",
                format!(
                    "{online} replicas are connected, and dlock.durability requires {}",
                    wants.replicas
                ),
                "start replicas (INFO replication lists the connected ones), or lower \
                 dlock.durability: until then every acquire fails",
            ));
        } else if let Some(lag) = replicas.iter().map(|replica| replica.lag).max()
            && lag > LAG
        {
            findings.push(Finding::warning(
                "replication",
                format!("a replica has not been heard from for {lag} s"),
                "check that it runs and keeps up (INFO replication): if it becomes the master, it \
                 lacks the latest grants",
            ));
        } else if online == 0 && wants.is_cluster {
            findings.push(Finding::warning(
                "replication",
                "no replicas: locks are unavailable while this server is down",
                "add one: redis-cli --cluster add-node --cluster-slave",
            ));
        } else if online == 0 && wants.has_sentinels {
            findings.push(Finding::warning(
                "replication",
                "no replica is connected: the sentinels have no server for a failover, so locks are \
                 unavailable while this server is down",
                "start one, and run REPLICAOF with the address of the master on it",
            ));
        } else {
            findings.push(Finding::fine("replication", format!("{online} replicas are connected")));
        }
        if !wants.has_sentinels && !wants.is_cluster {
            return findings;
        }
        findings.push(self.failover());
        findings
    }

    fn failover(&self) -> Finding {
        let setting = |name| self.settings.get(name).map(String::as_str);
        let lag = setting("min-replicas-max-lag");
        let found = match (setting("min-replicas-to-write"), lag.map(str::parse::<u64>)) {
            (None, _) => "it does not report min-replicas-to-write".to_owned(),
            (Some("0"), _) => "a master that is partitioned from its replicas continues to grant \
                               locks for a while (min-replicas-to-write 0)"
                .to_owned(),
            (_, None | Some(Err(_))) => "it does not report min-replicas-max-lag".to_owned(),
            (_, Some(Ok(0))) => {
                "a master that is partitioned from its replicas continues to grant \
                                 locks for a while (min-replicas-max-lag 0 turns \
                                 min-replicas-to-write off)"
                    .to_owned()
            }
            (_, Some(Ok(lag))) if lag > PARTITIONED => format!(
                "a master that is partitioned from its replicas continues to grant locks for {lag} s \
                 (min-replicas-max-lag)"
            ),
            (_, Some(Ok(lag))) => {
                return Finding::fine(
                    "failover",
                    format!(
                        "a master that is partitioned from its replicas stops granting locks after \
                         {lag} s"
                    ),
                );
            }
        };
        Finding::warning(
            "failover",
            found,
            "run CONFIG SET min-replicas-to-write 1 and CONFIG SET min-replicas-max-lag 10 on all \
             servers, and write both into redis.conf",
        )
    }

    fn listing(&self) -> Finding {
        match self.may_scan {
            true => Finding::fine("rights", "this user may use and list locks"),
            false => Finding::warning(
                "rights",
                "this user may use locks, but not list them",
                "run ACL SETUSER name +scan to allow it",
            ),
        }
    }

    fn connections(&self) -> Vec<Finding> {
        let setting = |name| self.settings.get(name).map(String::as_str);
        let (idle, alive) = (setting("timeout"), setting("tcp-keepalive"));
        if idle.is_none() && alive.is_none() {
            return vec![Finding::warning(
                "connections",
                "it does not report its settings",
                "give this user the right (ACL SETUSER name +config|get), or check as another user \
                 that tcp-keepalive is not 0",
            )];
        }
        let mut findings = Vec::new();
        findings.push(match idle {
            None => Finding::warning(
                "connections",
                "it does not report timeout",
                "check as another user that timeout is 0 (CONFIG GET timeout)",
            ),
            Some("0") => Finding::fine("connections", "idle connections stay open"),
            Some(seconds) => Finding::warning(
                "connections",
                format!("connections that are idle for {seconds:.20} s are closed (timeout)"),
                "run CONFIG SET timeout 0, and write it into redis.conf: after each closed \
                 connection the next lock has to open a new one",
            ),
        });
        if alive.is_none() {
            findings.push(Finding::warning(
                "connections",
                "it does not report tcp-keepalive",
                "check as another user that it is not 0 (CONFIG GET tcp-keepalive)",
            ));
        }
        if alive == Some("0") {
            findings.push(Finding::warning(
                "connections",
                "clients whose machine has failed look alive for hours (tcp-keepalive 0), and \
                 locks are granted to them",
                "run CONFIG SET tcp-keepalive 60, and write it into redis.conf",
            ));
        }
        findings
    }
}

/// A replica, as its master sees it.
struct Replica {
    online: bool,
    /// The time since its last message, in seconds.
    lag: u64,
}

impl Replica {
    /// Reads `ip=..,port=..,state=online,offset=..,lag=1`.
    fn read(text: &str) -> Option<Self> {
        let field = |name: &str| text.split(',').find_map(|part| part.strip_prefix(name));
        Some(Self {
            online: field("state=")? == "online",
            lag: field("lag=").and_then(|lag| lag.parse().ok()).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests;
