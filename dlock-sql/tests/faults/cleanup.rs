//! The check that nothing is left on the server after the last release.

use std::time::Duration;

use dlock_core::{Clock, machine::text};
use dlock_testkit::{Stop, Verdict};
use tokio::time::sleep;

use crate::{connect, server::Server};

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until no transaction is open and no claim is alive, and then until no row is left: that of
/// a free lock stays for the retention, which is short here.
pub(crate) async fn nothing(server: &Server) -> Verdict {
    let end = Clock::Boot.now().saturating_add(BOUND);
    // Somebody has to be there to sweep.
    let _sweeper = connect(server.patient_url()).await?;
    for all in [false, true] {
        loop {
            let mut left = server.open_transactions().await?;
            left.extend(rows(server, all).await?);
            if left.is_empty() {
                break;
            }
            if Clock::Boot.now() >= end {
                return Err(Stop::failed(format!("this is left: {left:?}")));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// The rows of locks that are held or waited for, or of `all`.
async fn rows(server: &Server, all: bool) -> Result<Vec<String>, Stop> {
    let rows = server.query(match server {
        Server::Postgres(_) => {
            "SELECT name, (extract(epoch FROM now()) * 1000000)::bigint, snap, log FROM dlock_lock"
        }
        Server::Mysql(_) => {
            "SELECT name, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), snap, log \
             FROM dlock_lock"
        }
    });
    let mut left = Vec::new();
    for row in rows.await? {
        let [name, now, snap, log] = row.as_slice() else {
            return Err(Stop::failed(format!("an odd row: {row:?}")));
        };
        if all || !text::replay(snap, log)?.machine.is_free(now.parse()?) {
            left.push(format!("{name}: {snap} {log}"));
        }
    }
    Ok(left)
}
