//! Reading a URL.

use std::time::Duration;

use dlock_core::{BackendUrl, ConfigIssue, Error};

use super::{Durability, Login, RedisConfig, Topology, malformed};

impl RedisConfig {
    /// Takes dlock's options out of a URL and reads the rest.
    pub(crate) fn take(url: &mut BackendUrl) -> Result<Self, Error> {
        let scheme = url.scheme().to_owned();
        let (base, kind) = scheme.split_once('+').unwrap_or((&scheme, ""));
        let tls = base == "rediss";
        if !Self::SCHEMES.contains(&scheme.as_str()) {
            return Err(url.not_of("Redis", Self::SCHEMES));
        }
        if tls && cfg!(not(feature = "tls")) {
            return Err(Error::config(
                ConfigIssue::MissingFeature,
                format!(
                    "{scheme}: needs the Cargo feature \"tls\": enable it for dlock in Cargo.toml"
                ),
            ));
        }
        let mut config = Self {
            topology: Topology::Single,
            addresses: Vec::new(),
            login: Login::default(),
            sentinel_login: Login {
                user: url.take("sentinel_user"),
                password: url.take("sentinel_password"),
            },
            database: 0,
            tls: url.take_tls("rediss", tls)?,
            given: None,
            durability: Durability::Master,
            restart_guard: url.take_duration("restart_guard")?,
            response_timeout: Duration::from_secs(2),
            plain: url.take_bool("plain")?.unwrap_or(false),
            prefix: url.prefix().to_owned(),
        };
        if let Some(text) = url.take("durability") {
            config.durability = text.parse()?;
        }
        if let Some(timeout) = url.take_duration("response_timeout")? {
            config.response_timeout = timeout;
        }
        config.read_address(kind, url.address())?;
        config.checked()
    }

    /// Reads `//[[user]:password@]host[:port][,...][/master][/database]`, or a socket's path.
    fn read_address(&mut self, kind: &str, address: &str) -> Result<(), Error> {
        let (address, query) = address.split_once('?').unwrap_or((address, ""));
        let rest = address.strip_prefix("//").ok_or_else(|| malformed("the // is missing"))?;
        if kind == "unix" {
            return self.read_socket(rest, query);
        }
        if !query.is_empty() {
            return Err(Error::config(
                ConfigIssue::UnknownOption,
                "Redis URLs have only dlock's own options, which begin with dlock.: write the user \
                 and password before the host, and the database after it",
            ));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        no_password_in(&decoded(path)?)?;
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        self.login = read_login(login)?;
        let sentinel = kind == "sentinel";
        let mut path = path.split('/').filter(|part| !part.is_empty());
        self.topology = match kind {
            "sentinel" => Topology::Sentinel(decoded(path.next().ok_or_else(|| {
                malformed("the name of the master is missing: redis+sentinel://host/mymaster")
            })?)?),
            "cluster" => Topology::Cluster,
            "quorum" => Topology::Quorum,
            _ => Topology::Single,
        };
        if let Some(database) = path.next() {
            self.database = read_database(database, "redis://host:6379/0")?;
        }
        if path.next().is_some() {
            return Err(malformed("there are too many parts after the host"));
        }
        let port = if sentinel { 26379 } else { 6379 };
        for host in hosts.split(',') {
            self.addresses.push(BackendUrl::with_port(host, port).map_err(malformed)?);
        }
        Ok(())
    }
}

impl RedisConfig {
    /// Reads `[[user]:password@]/path[?db=database&user=user&pass=password]`. A path has no room
    /// for a database. The options are those of redis-rs; redis-py calls the password `password`.
    fn read_socket(&mut self, rest: &str, query: &str) -> Result<(), Error> {
        self.topology = Topology::Socket;
        let at = rest.find('/').ok_or_else(|| malformed("the socket's path is missing"))?;
        let (login, path) = rest.split_at(at);
        no_password_in(path)?;
        self.login = match login.strip_suffix('@') {
            Some(login) => {
                no_password_in(&decoded(path)?)?;
                read_login(login)?
            }
            None if login.is_empty() => Login::default(),
            None => return Err(malformed("a socket has no host: redis+unix:///path")),
        };
        self.addresses.push(decoded(path)?);
        let [mut database, mut user, mut password] = [None, None, None];
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "db" => &mut database,
                "user" => &mut user,
                "pass" | "password" => &mut password,
                // Not shown: a password that is not encoded may be here.
                _ => {
                    return Err(Error::config(
                        ConfigIssue::UnknownOption,
                        "a socket's URL has the options db, user, pass and dlock's own, which begin \
                         with dlock.: remove the others, and write & in a password as %26",
                    ));
                }
            };
            if place.replace(decoded(value)?).is_some() {
                return Err(Error::config(
                    ConfigIssue::RepeatedOption,
                    "the socket's URL has an option twice (db, user or pass): remove one",
                ));
            }
        }
        if let Some(text) = database {
            self.database = read_database(&text, "redis+unix:///path?db=0")?;
        }
        if user.is_some() || password.is_some() {
            if login.len() > 1 {
                return Err(malformed("the login is before the path and behind it"));
            }
            self.login = checked_login(user, password)?;
        }
        Ok(())
    }
}

fn read_database(text: &str, form: &str) -> Result<i64, Error> {
    let database = text.parse().ok().filter(|database| *database >= 0);
    database.ok_or_else(|| malformed(&format!("the database is not a number: {form}")))
}

fn read_login(text: &str) -> Result<Login, Error> {
    let filled = |text: &str| -> Result<Option<String>, Error> {
        if text.is_empty() { Ok(None) } else { decoded(text).map(Some) }
    };
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    checked_login(filled(user)?, filled(password)?)
}

fn checked_login(user: Option<String>, password: Option<String>) -> Result<Login, Error> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let login = Login { user: filled(user), password: filled(password) };
    if login.user.is_some() && login.password.is_none() {
        // The driver would not log in.
        return Err(malformed("the user has no password (redis://:password@host has no user)"));
    }
    Ok(login)
}

/// Refuses an @ behind a slash: it ends a password, and messages show the path.
fn no_password_in(path: &str) -> Result<(), Error> {
    if path.contains('@') {
        return Err(malformed("an @ follows the first /, which the path can't have"));
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, Error> {
    BackendUrl::decoded(text).map_err(malformed)
}
