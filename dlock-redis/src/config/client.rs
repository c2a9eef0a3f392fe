//! The configuration from a client of the application.

use dlock_core::{ConfigIssue, Error, TlsFiles};
use redis::{Client, ConnectionAddr};

use super::{Login, RedisConfig, Topology, with_port};

impl RedisConfig {
    /// Uses the server of an application's client, with the client's user, password, database and
    /// TLS. For Sentinel, a cluster or a quorum, see [`from_url`](Self::from_url).
    ///
    /// dlock does not use the client's connections. It opens a connection of its own, because it
    /// receives messages on it and needs RESP3, and because the application's commands must not
    /// delay a renewal. The commands of the two do not interfere.
    ///
    /// ```
    /// use dlock_redis::RedisConfig;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://:secret@localhost:6379/2")?;
    /// let config = RedisConfig::from_client(&client)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Config(Url)` for an address that is neither TCP nor a Unix socket.
    pub fn from_client(client: &Client) -> Result<Self, Error> {
        let info = client.get_connection_info();
        let (topology, address, tls) = match info.addr() {
            ConnectionAddr::Unix(path) => (Topology::Socket, path.display().to_string(), false),
            ConnectionAddr::TcpTls { host, port, .. } => {
                (Topology::Single, with_port(host, port), true)
            }
            ConnectionAddr::Tcp(host, port) => (Topology::Single, with_port(host, port), false),
            _ => {
                return Err(Error::config(
                    ConfigIssue::Url,
                    "the client has an address of a kind that dlock does not know: use a URL",
                ));
            }
        };
        let redis = info.redis_settings();
        let mut config = Self::from_url("redis://localhost")?;
        config.topology = topology;
        config.addresses = vec![address];
        config.login = Login {
            user: redis.username().map(str::to_owned),
            password: redis.password().map(str::to_owned),
        };
        config.database = redis.db();
        config.tls = tls.then(TlsFiles::default);
        config.given = Some(info.addr().clone());
        config.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> RedisConfig {
        RedisConfig::from_client(&Client::open(url).unwrap()).unwrap()
    }

    #[test]
    fn a_client_and_its_url_are_the_same_store() {
        for url in [
            "redis://localhost",
            "redis://localhost:7/3",
            "redis://u:hunter2@127.0.0.1/0",
            "redis://:hunter2@[::1]:7",
        ] {
            let (ours, theirs) = (RedisConfig::from_url(url).unwrap(), config(url));
            assert_eq!(theirs.store(), ours.store());
            assert_eq!(theirs.login.user, ours.login.user);
            assert_eq!(theirs.login.password, ours.login.password);
            assert_eq!((&theirs.topology, theirs.database), (&ours.topology, ours.database));
            assert!(!format!("{theirs:?}").contains("hunter2"), "{theirs:?}");
        }
        let socket = config("redis+unix:///run/redis.sock?db=2&pass=hunter2");
        assert_eq!(socket.topology, Topology::Socket);
        assert_eq!(socket.database, 2);
        assert_eq!(socket.store(), "redis+unix:///run/redis.sock?db=2");
    }
}
