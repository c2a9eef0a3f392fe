//! The checks of a server, and its guarantees.

use dlock_core::{ConfigIssue, Error, ErrorKind};

use super::{conn::MysqlConn, durability::ServerSettings, error::is_denied};
use crate::engine::Fault;

/// The properties of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// Whether it has `RETURNING`.
    pub(super) returning: bool,
    /// Whether commits survive a crash.
    pub(super) is_durable: bool,
    /// Whether it is a node of a Galera cluster.
    pub(super) is_galera: bool,
}

/// Checks the server's version and settings.
pub(super) async fn check_server(conn: &mut MysqlConn) -> Result<Server, Fault> {
    Ok(read(&ServerSettings::read(conn).await?)?)
}

/// Checks the user's rights on a table.
pub(super) async fn check_rights(
    conn: &mut MysqlConn,
    table: &str,
    rights: &[(&str, &'static str)],
) -> Result<(), Fault> {
    let mut missing = Vec::new();
    let mut last = None;
    for (right, probe) in rights {
        match conn.rows(probe).await {
            Ok(_) => {}
            Err(fault) if is_denied(&fault.error) => {
                missing.push(*right);
                last = Some(fault.error);
            }
            Err(fault) => return Err(fault),
        }
    }
    let Some(last) = last else { return Ok(()) };
    let rights = missing.join(", ");
    Err(Error::config(
        ConfigIssue::Access,
        format!("the user lacks rights: run GRANT {rights} ON {table} TO the user"),
    )
    .with_source(last)
    .into())
}

fn read(settings: &ServerSettings) -> Result<Server, Error> {
    let returning = check_version(settings.value("version"))?;
    for name in ["read_only", "super_read_only", "innodb_read_only"] {
        if !matches!(settings.get(name), None | Some("OFF" | "0")) {
            return Err(Error::config(
                ConfigIssue::Access,
                format!(
                    "the server takes no writes ({name}): give the address of the primary, not of \
                     a replica"
                ),
            ));
        }
    }
    let (is_durable, is_galera) = (settings.is_durable(), settings.is_on("wsrep_on"));
    Ok(Server { returning, is_durable, is_galera })
}

/// Refuses versions that are too old. Returns true if this version has `RETURNING`.
fn check_version(version: &str) -> Result<bool, Error> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let number = (next(), next());
    let is_mariadb = version.contains("MariaDB");
    if number >= if is_mariadb { (10, 6) } else { (8, 0) } {
        return Ok(is_mariadb);
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server has version {version:.80}, which lacks JSON_TABLE: use MariaDB 10.6, MySQL \
             8.0 or later"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(settings: &[(&str, &str)]) -> Result<Server, Error> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        read(&ServerSettings(settings.iter().map(owned).collect()))
    }

    #[test]
    fn old_versions_are_refused_and_only_mariadb_returns() {
        for (version, returning) in [
            ("10.11.19-MariaDB-0+deb12u1", Some(true)),
            ("10.6.0-MariaDB-log", Some(true)),
            ("12.0.2-MariaDB", Some(true)),
            ("8.0.36", Some(false)),
            ("8.0.mysql_aurora.3.07.1", Some(false)),
            ("9.7.4-commercial", Some(false)),
            ("10.5.28-MariaDB", None),
            ("5.7.44-log", None),
            ("", None),
        ] {
            match server(&[("version", version)]) {
                Ok(server) => assert_eq!(Some(server.returning), returning, "{version}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    assert_eq!(returning, None, "{error}");
                    for part in [version, "JSON_TABLE", "MariaDB 10.6"] {
                        assert!(error.to_string().contains(part), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_replica_is_refused() {
        for name in ["read_only", "super_read_only", "innodb_read_only"] {
            let error = server(&[("version", "8.4.0"), (name, "ON")]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Access));
            assert!(error.to_string().contains("primary"), "{error}");
            assert!(server(&[("version", "8.4.0"), (name, "OFF")]).is_ok());
        }
    }
}
