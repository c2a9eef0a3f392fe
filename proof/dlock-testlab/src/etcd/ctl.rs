//! Access to a server without the client under test: through `etcdctl`, and to its metrics over
//! HTTP, which need no login and no quorum.

use std::process::Stdio;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
};

use super::{EtcdServer, server::Programs};
use crate::{
    Stop, Verdict,
    wait::{soon, until},
};

/// The size of a value that fills the database. The system limits the length of an argument.
const LARGE: usize = 100_000;

/// The maximum number of values that fill the database.
const MOST: usize = 10_000;

/// The role of a server, as it sees itself. A leader that has lost its followers, or was paused,
/// considers itself a leader until its election timeout has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// It leads. A server that is alone leads, too.
    Leader,
    /// It follows a leader.
    Follower,
    /// It knows no leader.
    Leaderless,
}

impl EtcdServer {
    /// Runs `etcdctl` with these arguments on this server and returns its output. If there is a
    /// [root](super::Options::with_root), it logs in as that user.
    ///
    /// # Errors
    /// If it fails, with its message.
    pub async fn etcdctl(&self, args: &[&str]) -> Result<String, Stop> {
        let login = self.options.root.as_ref().map(|password| format!("root:{password}"));
        self.etcdctl_as(login.as_deref(), args).await
    }

    /// Like [`Self::etcdctl`], as the user with this `name:password`, or without a login.
    ///
    /// # Errors
    /// If it fails, with its message.
    pub async fn etcdctl_as(&self, login: Option<&str>, args: &[&str]) -> Result<String, Stop> {
        let mut command = Command::new(&Programs::find()?.etcdctl);
        // Its options may come from the environment, too.
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("ETCDCTL_API", "3");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command.args(["--endpoints", &self.address(), "--command-timeout", "10s"]);
        if let Some(login) = login {
            command.args(["--user", login]);
        }
        let output = command.args(args).output().await?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(Stop::failed(String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Puts a key.
    ///
    /// # Errors
    /// If the server refuses it, and if no answer arrives.
    pub async fn put(&self, key: &str, value: &str) -> Verdict {
        self.etcdctl(&["put", "--", key, value]).await.map(|_| ())
    }

    /// Returns the value of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn value(&self, key: &str) -> Result<Option<String>, Stop> {
        let text = self.etcdctl(&["get", "--", key]).await?;
        Ok(text.split_once('\n').map(|(_, value)| value.trim_end_matches('\n').to_owned()))
    }

    /// Returns all keys that start with this prefix, sorted.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn keys_under(&self, prefix: &str) -> Result<Vec<String>, Stop> {
        let text = self.etcdctl(&["get", "--prefix", "--keys-only", "--", prefix]).await?;
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Deletes a key, if it exists, whichever client created it.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn delete(&self, key: &str) -> Verdict {
        self.etcdctl(&["del", "--", key]).await.map(|_| ())
    }

    /// Returns the ids of all leases, in hexadecimal digits.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn leases(&self) -> Result<Vec<String>, Stop> {
        let text = self.etcdctl(&["lease", "list"]).await?;
        Ok(text.lines().skip(1).map(str::to_owned).collect())
    }

    /// Returns the keys of a lease; none if there is no such lease.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn keys_of(&self, lease: &str) -> Result<Vec<String>, Stop> {
        let text = self.etcdctl(&["lease", "timetolive", "--keys", lease]).await?;
        let keys = text.split_once("attached keys([").and_then(|(_, rest)| rest.split_once("])"));
        let keys = keys.map(|(keys, _)| keys.split_whitespace().map(str::to_owned).collect());
        Ok(keys.unwrap_or_default())
    }

    /// Revokes a lease and deletes all its keys.
    ///
    /// # Errors
    /// If there is no such lease, and if no answer arrives.
    pub async fn revoke(&self, lease: &str) -> Verdict {
        self.etcdctl(&["lease", "revoke", lease]).await.map(|_| ())
    }

    /// Returns the revision that the store has reached.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn revision(&self) -> Result<u64, Stop> {
        let text = self.etcdctl(&["get", "--write-out", "fields", "/"]).await?;
        let revision = text.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
        Ok(revision.ok_or_else(|| Stop::failed(format!("no revision in {text}")))?.parse()?)
    }

    /// Removes all revisions before the current one, and returns that one.
    ///
    /// # Errors
    /// If it is compacted already, and if no answer arrives.
    pub async fn compact(&self) -> Result<u64, Stop> {
        let revision = self.revision().await?;
        match self.etcdctl(&["compact", "--physical", &revision.to_string()]).await {
            // Nothing was written since the last time, or a member compacts by itself.
            Err(error) if format!("{error:?}").contains("has been compacted") => Ok(revision),
            compacted => compacted.map(|_| revision),
        }
    }

    /// Returns the space of removed revisions to the file system. The server serves nobody
    /// meanwhile.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn defragment(&self) -> Verdict {
        self.etcdctl(&["defrag"]).await.map(|_| ())
    }

    /// Writes large values to one key until the server refuses writes because its
    /// [quota](super::Options::with_quota) is exceeded.
    ///
    /// # Errors
    /// If there is room for a gigabyte, and if no answer arrives.
    pub async fn fill(&self) -> Verdict {
        let large = "x".repeat(LARGE);
        for _ in 0..MOST {
            match self.put("fill", &large).await {
                Ok(()) => {}
                Err(stop) if stop.clone().into_text().contains("space exceeded") => {
                    // The alarm is written after the refusal.
                    return until("the alarm is raised", || async {
                        match self.has_alarm().await? {
                            true => Ok(()),
                            false => Err(Stop::failed("there is no alarm")),
                        }
                    })
                    .await;
                }
                Err(stop) => return Err(stop),
            }
        }
        Err(Stop::failed("the quota is too large"))
    }

    /// Makes room in a [filled](Self::fill) server: compacts, defragments, and disarms the alarm. A
    /// filled ensemble needs the defragmentation of each node first.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn make_room(&self) -> Verdict {
        self.delete("fill").await?;
        self.compact().await?;
        self.defragment().await?;
        self.disarm().await
    }

    /// Disarms all alarms.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn disarm(&self) -> Verdict {
        self.etcdctl(&["alarm", "disarm"]).await.map(|_| ())
    }

    /// Whether any server has an alarm.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn has_alarm(&self) -> Result<bool, Stop> {
        Ok(self.etcdctl(&["alarm", "list"]).await?.contains("alarm:"))
    }

    /// Adds the [root](super::Options::with_root), if there is to be one, and makes clients log in.
    pub(super) async fn add_root(&self) -> Verdict {
        let Some(password) = &self.options.root else {
            return Ok(());
        };
        let user = format!("root:{password}");
        for args in [
            &["user", "add", user.as_str()][..],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            self.etcdctl_as(None, args).await?;
        }
        Ok(())
    }

    /// Returns the role of the server.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn role(&self) -> Result<Role, Stop> {
        let text = self.metrics().await?;
        let is_set = |name| Ok::<_, Stop>(metric(&text, name)? > 0.0);
        Ok(match (is_set("etcd_server_is_leader")?, is_set("etcd_server_has_leader")?) {
            (true, _) => Role::Leader,
            (false, true) => Role::Follower,
            (false, false) => Role::Leaderless,
        })
    }

    /// Returns a metric of the server, such as `etcd_debugging_mvcc_watcher_total`. If it has labels,
    /// this is the sum of all its series.
    ///
    /// # Errors
    /// If no answer arrives, or there is no such metric.
    pub async fn metric(&self, name: &str) -> Result<f64, Stop> {
        metric(&self.metrics().await?, name)
    }

    /// Returns the id of the server among its peers, in hexadecimal digits.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn member_id(&self) -> Result<String, Stop> {
        let text = self.metrics().await?;
        let id = text.lines().find_map(|line| line.strip_prefix("etcd_server_id{server_id=\""));
        let id = id.and_then(|rest| rest.split_once('"'));
        Ok(id.ok_or_else(|| Stop::failed("the server tells no id"))?.0.to_owned())
    }

    async fn metrics(&self) -> Result<String, Stop> {
        soon(get(self.address())).await
    }
}

async fn get(address: String) -> Result<String, Stop> {
    let mut server = TcpStream::connect(&address).await?;
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    server.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    server.read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(Stop::failed(format!("no metrics: {answer}"))),
    }
}

fn metric(text: &str, name: &str) -> Result<f64, Stop> {
    let series = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        // Labels may have spaces.
        rest.starts_with([' ', '{']).then(|| rest.rsplit_once(' '))?
    });
    let values: Vec<f64> = series.map(|(_, value)| value.parse()).collect::<Result<_, _>>()?;
    match values[..] {
        [] => Err(Stop::failed(format!("there is no metric {name}"))),
        _ => Ok(values.iter().sum()),
    }
}
