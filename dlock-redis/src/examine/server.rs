//! What a server's own words mean for locks.

use std::{collections::HashMap, time::Duration};

use dlock_core::Finding;

use crate::link::facts::{LACKING, OLDEST, version};

/// After so long without a word from its master, a replica is told of.
const LAG: u64 = 10;

/// What one server has said.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// The fields of `INFO`, if it tells.
    pub(super) info: Option<HashMap<String, String>>,
    /// Those that it tells.
    pub(super) settings: HashMap<String, String>,
    /// What its clock shows, since 1970.
    pub(super) time: Option<Duration>,
    pub(super) may_scan: bool,
}

/// What is expected of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    /// How many replicas have to know of a grant.
    pub(super) replicas: u32,
    /// For how long nothing is granted after it has started.
    pub(super) guard: Duration,
    pub(super) is_cluster: bool,
    pub(super) has_sentinels: bool,
}

impl Server {
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
                "it does not tell its version, its role, whether it evicts keys and what it keeps",
                "allow this user to ask: ACL SETUSER name +info, or look there: INFO",
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
        // Valkey also tells the version of Redis that it is compatible with.
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
                "it is a replica, which takes no writes",
                "give the address of the master, or use redis+sentinel:// or redis+cluster://, \
                 which find it",
            ),
            _ => Finding::fine("role", "it is a master"),
        }
    }

    fn eviction(&self) -> Finding {
        let (policy, most) = (self.field("maxmemory_policy"), self.number("maxmemory"));
        let remedy = "run CONFIG SET maxmemory-policy noeviction, and write it into redis.conf; or \
                      give the locks a server of their own";
        match policy {
            "noeviction" => Finding::fine("eviction", "maxmemory-policy is noeviction"),
            "" => Finding::warning("eviction", "it does not tell its maxmemory-policy", remedy),
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
                        "a restart may lose locks, and is outlasted: {:?} (restart_guard)",
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
            (true, Some("always") | None, _) => "it does not tell whether a crash may lose grants \
                                                 (appendfsync, no-appendfsync-on-rewrite)"
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
                format!("{online} replicas follow, and dlock.durability wants {}", wants.replicas),
                "start replicas (INFO replication shows those that follow), or lower \
                 dlock.durability: until then every acquire fails",
            ));
        } else if let Some(lag) = replicas.iter().map(|replica| replica.lag).max()
            && lag > LAG
        {
            findings.push(Finding::warning(
                "replication",
                format!("a replica has not been heard of for {lag} s"),
                "see that it runs and keeps up (INFO replication): it lacks grants if it takes \
                 over",
            ));
        } else if online == 0 && wants.is_cluster {
            findings.push(Finding::warning(
                "replication",
                "no replicas: locks are unavailable while this server is down",
                "add one: redis-cli --cluster add-node --cluster-slave",
            ));
        } else {
            findings.push(Finding::fine("replication", format!("{online} replicas follow")));
        }
        if !wants.has_sentinels && !wants.is_cluster {
            return findings;
        }
        let remedy = "run CONFIG SET min-replicas-to-write 1 on all servers, and write it into \
                      redis.conf";
        findings.push(match self.settings.get("min-replicas-to-write").map(String::as_str) {
            None => Finding::warning("failover", "it does not tell min-replicas-to-write", remedy),
            Some("0") => Finding::warning(
                "failover",
                "a master that is cut off from its replicas goes on granting locks for a while \
                 (min-replicas-to-write 0)",
                remedy,
            ),
            Some(_) => Finding::fine("failover", "a master that is cut off stops to grant locks"),
        });
        findings
    }

    fn listing(&self) -> Finding {
        match self.may_scan {
            true => Finding::fine("rights", "this user may use locks, and list them"),
            false => Finding::warning(
                "rights",
                "this user may use locks, but not list them",
                "allow it: ACL SETUSER name +scan",
            ),
        }
    }

    fn connections(&self) -> Vec<Finding> {
        let setting = |name| self.settings.get(name).map(String::as_str);
        let (idle, alive) = (setting("timeout"), setting("tcp-keepalive"));
        if idle.is_none() && alive.is_none() {
            return vec![Finding::warning(
                "connections",
                "it does not tell its settings",
                "allow this user to ask: ACL SETUSER name +config|get; or see there that \
                 tcp-keepalive is not 0",
            )];
        }
        let mut findings = Vec::new();
        findings.push(match idle {
            None | Some("0") => Finding::fine("connections", "idle ones stay open"),
            Some(seconds) => Finding::warning(
                "connections",
                format!("those that are idle for {seconds:.20} s are closed (timeout)"),
                "run CONFIG SET timeout 0, and write it into redis.conf: each costs the next lock a \
                 new connection",
            ),
        });
        if alive == Some("0") {
            findings.push(Finding::warning(
                "connections",
                "clients whose machine is gone look alive for hours (tcp-keepalive 0), and locks \
                 are handed to them",
                "run CONFIG SET tcp-keepalive 60, and write it into redis.conf",
            ));
        }
        findings
    }
}

/// A replica, as its master sees it.
struct Replica {
    online: bool,
    /// Since when it has not been heard of, in seconds.
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
