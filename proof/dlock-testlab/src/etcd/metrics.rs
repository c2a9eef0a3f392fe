//! The metrics of a server, over HTTP. They need no login and no quorum.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::EtcdServer;
use crate::{Stop, wait::soon};

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
    /// Returns the role of the server.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn role(&self) -> Result<Role, Stop> {
        let text = self.metrics().await?;
        let is_set = |name| Ok::<_, Stop>(value(&text, name)? > 0.0);
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
        value(&self.metrics().await?, name)
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

fn value(text: &str, name: &str) -> Result<f64, Stop> {
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
