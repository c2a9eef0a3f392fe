//! Runs SQL on a server, over a separate connection or with the server's own command-line client.

use std::process::Stdio;

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, ColumnIndex, ConnectOptions, Connection, Database, Decode, Executor, Row as _,
};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::Stop;

/// Runs SQL with the connection options, up to the first statement that fails. Returns the rows as
/// text, with `null` in place of null.
pub(super) async fn ask<D, O>(options: O, sql: &str, null: &str) -> Result<Vec<Vec<String>>, Stop>
where
    D: Database,
    O: ConnectOptions<Connection = D::Connection>,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'r> &'r str: Decode<'r, D>,
    usize: ColumnIndex<D::Row>,
{
    let said = |error: sqlx::Error| Stop::failed(error.to_string());
    let mut connection = options.disable_statement_logging().connect().await.map_err(said)?;
    let mut rows = Vec::new();
    let mut answer = sqlx::raw_sql(AssertSqlSafe(sql)).fetch(&mut connection);
    while let Some(row) = answer.try_next().await.map_err(said)? {
        let text = |at| {
            // Without parameters, servers answer in text for every type.
            let field: Option<&str> = row.try_get_unchecked(at).map_err(said)?;
            Ok(field.unwrap_or(null).to_owned())
        };
        rows.push((0..row.len()).map(text).collect::<Result<_, Stop>>()?);
    }
    drop(answer);
    connection.close().await.map_err(said)?;
    Ok(rows)
}

/// Sends `sql` to the standard input of a server's own command-line client and returns the client's output. The client ignores
/// the settings of the user who runs the tests.
pub(super) async fn script(mut client: Command, sql: &str) -> Result<String, Stop> {
    let mut client = client
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let input = client.stdin.take();
    let write = async {
        // A client without a connection does not read its input. The error below gives the reason.
        if let Some(mut input) = input {
            let _ = input.write_all(sql.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(write, client.wait_with_output());
    let output = output?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(Stop::failed(String::from_utf8_lossy(&output.stderr).trim())),
    }
}
