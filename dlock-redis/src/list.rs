//! Which names are held or waited for: a walk through all keys, with `SCAN`.
//!
//! Each step looks at a few hundred keys and holds nobody up for longer than that takes; `KEYS` would
//! hold up everybody. What is there from the beginning of a walk to its end is seen. What was seen is
//! looked at once more, by name, since F stays when the lock is free.
//!
//! There are two walks, because a name in use may have none of its keys all the time: in a cluster
//! keys move, from a master that is still to come to one that is done; and a lock that is held for
//! longer than F stays has no F until somebody joins it, and may have no H soon after. Neither happens
//! during both walks.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::{Error, ErrorKind, LockName};
use redis::Value;

use crate::{
    config::Topology,
    error::{explain, unreadable},
    keys::{self, Bucket, Keys},
    link::Server,
    reply,
    session::{Session, Trouble},
};

/// About how many keys a step looks at.
const STEP: u32 = 512;
/// How many walks are begun before connections that break and masters that change are given up.
const WALKS: usize = 8;

/// What a walk is for.
struct Search<'a> {
    session: &'a Session,
    limit: usize,
    /// As `SCAN` takes it.
    pattern: String,
    /// The keys are the names. Otherwise the keys of a name say whether it is in use.
    plain: bool,
}

/// The names that begin with `prefix` and are held or waited for, at most `limit`.
pub(crate) async fn list(
    session: &Session,
    prefix: &str,
    limit: usize,
) -> Result<Vec<LockName>, Error> {
    Search { session, limit, pattern: keys::pattern(prefix), plain: false }.run(prefix).await
}

/// The names of the plain form that begin with `prefix`: all keys that could be one.
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

    /// Walks through all servers; whether they have the same keys as at the beginning.
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

    /// Walks through one server; `false` when the connection was lost, since the next one may lead to
    /// another server, where the walk has no place.
    async fn walk_through(
        &self,
        server: &Server,
        prefix: &str,
        found: &mut BTreeSet<LockName>,
    ) -> Result<bool, Error> {
        let mut trouble = Trouble::new(self.session.patience);
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
                    trouble.over(error).await?;
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

    /// Those of the names that are held or waited for.
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
                // H, Q and R at one time: what is handed over is in one of them at each.
                commands.cmd("EXISTS").arg(&[all[0], all[2], all[4]]);
                commands.cmd("EXISTS").arg(keys.holder());
            }
            let answers = self.session.run_all(&commands).await?;
            for (name, answer) in names.into_iter().zip(answers.chunks(2)) {
                match answer {
                    [Value::Int(0), _] => {}
                    [Value::Int(_), Value::Int(1)] => used.push(name),
                    // The dead leave the queue when somebody comes by.
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
