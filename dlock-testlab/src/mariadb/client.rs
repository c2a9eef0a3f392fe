//! The command-line client, which has no URLs.

use std::path::Path;

use tokio::process::Command;

use crate::{Stop, client::ask};

/// Has the client do some SQL as and where the URL says. The rows of the answer.
pub(super) async fn query(client: &Path, url: &str, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
    let mut command = Command::new(client);
    command.args(["--no-defaults", "--batch", "--skip-column-names", "--protocol=tcp"]);
    command.args(arguments(url).ok_or_else(|| Stop::failed("not a URL of a user"))?);
    let answer = ask(command, sql).await?;
    Ok(answer.lines().map(|row| row.split('\t').map(unescaped).collect()).collect())
}

/// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE[?ssl-mode=..&ssl-ca=..]`.
fn arguments(url: &str) -> Option<Vec<String>> {
    let (url, options) = url.split_once('?').unwrap_or((url, ""));
    let (user, server) = url.strip_prefix("mysql://")?.rsplit_once('@')?;
    let (user, password) = user.split_once(':')?;
    let (address, database) = server.split_once('/')?;
    let (host, port) = address.rsplit_once(':')?;
    let mut arguments = vec![
        format!("--user={user}"),
        format!("--password={password}"),
        format!("--host={host}"),
        format!("--port={port}"),
        format!("--database={database}"),
    ];
    for option in options.split('&') {
        match option.split_once('=') {
            Some(("ssl-ca", path)) => arguments.push(format!("--ssl-ca={path}")),
            Some(("ssl-mode", "VERIFY_IDENTITY")) => {
                arguments.push("--ssl-verify-server-cert".to_owned());
            }
            _ => {}
        }
    }
    Some(arguments)
}

fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field.chars();
    while let Some(one) = rest.next() {
        text.extend(match one {
            '\\' => match rest.next() {
                Some('n') => Some('\n'),
                Some('t') => Some('\t'),
                Some('0') => Some('\0'),
                other => other,
            },
            _ => Some(one),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_arguments() {
        let arguments = arguments("mysql://a:b@c:1/d?ssl-mode=VERIFY_IDENTITY&ssl-ca=/e").unwrap();
        let user = ["--user=a", "--password=b", "--host=c", "--port=1", "--database=d"];
        assert_eq!(arguments[..5], user);
        assert_eq!(arguments[5..], ["--ssl-verify-server-cert", "--ssl-ca=/e"]);
        assert!(super::arguments("mysql://c:1/d").is_none());
    }

    #[test]
    fn what_is_escaped_is_read() {
        assert_eq!(unescaped(r"a\nb\tc\\n\0"), "a\nb\tc\\n\0");
    }
}
