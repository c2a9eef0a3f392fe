//! The names that are held or waited for. A walk through all keys with `SCAN` finds them.
//!
//! Each step reads a few hundred keys, and blocks the server only for that long. `KEYS` would block
//! all clients. A walk finds each key that exists during the whole walk. The names found are then
//! checked one by one, since keys of claims whose leases have ended may be left.
//!
//! There are two walks, because a name in use may have no key that exists during the whole of one. In
//! a cluster a key may move from a master that the walk has not reached to a master that it has left.
//! A lock that is handed from readers to a writer has other keys then. Neither happens during both
//! walks, unless the lock changes all the time.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::{Error, ErrorKind, LockName};
use redis::Value;

use crate::{
    config::Topology,
    error::{explain, unreadable},
    keys::{self, Bucket, Keys},
    link::Server,
    reply,
    session::{Retries, Session},
};

/// The approximate number of keys in a step.
const STEP: u32 = 512;
/// The largest number of walks that are started if connections break or masters change meanwhile.
const WALKS: usize = 8;

/// The parameters of a walk.
struct Search<'a> {
    session: &'a Session,
    limit: usize,
    /// The pattern for `SCAN`.
    pattern: String,
    /// Whether the keys are the names. If not, the keys of a name show whether it is in use.
    plain: bool,
}

/// Returns the names that begin with `prefix` and are held or waited for, at most `limit`.
pub(crate) async fn list(
    session: &Session,
    prefix: &str,
    limit: usize,
) -> Result<Vec<LockName>, Error> {
    Search { session, limit, pattern: keys::pattern(prefix), plain: false }.run(prefix).await
}

/// Returns the names of the plain form that begin with `prefix`: all keys that could be the name of
/// a lock.
pub(crate) async fn list_plain(
    session: &Session,
    prefix: &str,
    limit: usize,
) -> Result<Vec<LockName>, Error> {
    let pattern = format!("{}*", keys::literal(prefix));
    Search { session, limit, pattern, plain: true }.run(prefix).await
}

impl Search<'_> {
    async fn run(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        let mut found = BTreeSet::new();
        if LockName::can_begin_with(prefix) {
            let mut left = if self.plain { 1 } else { 2 };
            for _ in 0..WALKS {
                if self.walk(prefix, &mut found).await? {
                    left -= 1;
                }
                if left == 0 || found.len() >= self.limit {
                    return Ok(found.into_iter().take(self.limit).collect());
                }
            }
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the connection was lost several times, or the masters of the cluster keep \
                 changing: list again when they are stable",
            ));
        }
        Ok(Vec::new())
    }

    /// Walks through all servers. Returns true if they still have the same keys as at the
    /// beginning.
    async fn walk(&self, prefix: &str, found: &mut BTreeSet<LockName>) -> Result<bool, Error> {
        let before = self.session.link.servers();
        for server in before.iter().collect::<BTreeSet<_>>() {
            if !self.walk_through(server, prefix, found).await? {
                return Ok(false);
            }
            if found.len() >= self.limit {
                break;
            }
        }
        Ok(self.session.link.servers() == before)
    }

    /// Walks through one server. Returns false if the connection was lost: the next connection may
    /// lead to another server, on which the cursor means nothing.
    async fn walk_through(
        &self,
        server: &Server,
        prefix: &str,
        found: &mut BTreeSet<LockName>,
    ) -> Result<bool, Error> {
        let mut retries = Retries::new(self.session.response_timeout);
        let (mut cursor, mut first) = ("0".to_owned(), None);
        loop {
            let mut scan = redis::pipe();
            scan.cmd("SCAN").arg(&cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(STEP);
            if self.plain {
                scan.arg("TYPE").arg("string");
            }
            let (answer, connection) = match self.session.link.send_to(server, &scan).await {
                Ok(answer) => answer,
                Err(error) => {
                    retries.pause_after(error).await?;
                    if !self.session.link.servers().contains(server) {
                        return Ok(false);
                    }
                    (cursor, first) = ("0".to_owned(), None);
                    continue;
                }
            };
            if connection.is_none() || *first.get_or_insert(connection) != connection {
                return Ok(false);
            }
            let (next, keys) =
                reply::scanned(&answer).ok_or_else(|| unreadable("SCAN", &answer))?;
            let is_new =
                |name: &LockName| name.as_str().starts_with(prefix) && !found.contains(name);
            let names: BTreeSet<LockName> =
                keys.into_iter().filter_map(|key| self.name(key)).filter(is_new).collect();
            found.extend(self.used(names).await?);
            if next == "0" || found.len() >= self.limit {
                return Ok(true);
            }
            cursor = next;
        }
    }

    fn name(&self, key: &[u8]) -> Option<LockName> {
        match self.plain {
            true => LockName::new(std::str::from_utf8(key).ok()?).ok(),
            false => keys::name_of(key),
        }
    }

    /// Returns the names among these that are held or waited for.
    async fn used(&self, names: BTreeSet<LockName>) -> Result<Vec<LockName>, Error> {
        if self.plain {
            return Ok(names.into_iter().collect());
        }
        let mut groups = BTreeMap::<Option<Bucket>, Vec<LockName>>::new();
        let is_cluster = self.session.topology == Topology::Cluster;
        for name in names {
            groups.entry(is_cluster.then(|| Bucket::of(&name))).or_default().push(name);
        }
        let mut used = Vec::new();
        for names in groups.into_values() {
            let mut commands = redis::pipe();
            for name in &names {
                let keys = Keys::of(name);
                let all: Vec<&str> = keys.all().collect();
                // Holder, queue and readers with one command: during a hand-off the claim is
                // always in one of them.
                commands.cmd("EXISTS").arg(&[all[0], all[2], all[4]]);
                commands.cmd("EXISTS").arg(keys.holder());
            }
            let answers = self.session.run_all(&commands).await?;
            for (name, answer) in names.into_iter().zip(answers.chunks(2)) {
                match answer {
                    [Value::Int(0), _] => {}
                    [Value::Int(_), Value::Int(1)] => used.push(name),
                    // A claim whose lease has ended leaves the queue only with the next script.
                    [Value::Int(_), Value::Int(_)] => {
                        if !self.session.inspect(&name).await?.is_free() {
                            used.push(name);
                        }
                    }
                    [Value::ServerError(error), _] | [_, Value::ServerError(error)] => {
                        return Err(explain(error.clone().into()));
                    }
                    other => return Err(unreadable("EXISTS", &Value::Array(other.to_vec()))),
                }
            }
        }
        Ok(used)
    }
}
