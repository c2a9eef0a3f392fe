//! A guarantee follows each setting that it depends on, even if the setting changes later.

use dlock_core::{DynBackend, Exclusion, Fencing};
use dlock_sql::Mysql;
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
};
use tokio::time::{sleep, timeout};

use crate::support::{LONG, ask, config, free, lock, server_with, with_mariadb};

async fn open(server: &MariadbServer, options: &str) -> Result<DynBackend, Stop> {
    Ok(Mysql::open(config(&format!("{}?dlock.create_schema=true{options}", server.url()))?).await?)
}

/// Uses the client until it promises nothing.
async fn until_weaker(client: &DynBackend) -> Verdict {
    let used = async {
        while client.guarantees().exclusion != Exclusion::Nothing {
            let request = ask("a");
            lock(client, &request).await?;
            free(client, &request).await?;
            sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    };
    timeout(LONG, used).await.map_err(|_| Stop::failed("it goes on promising"))?
}

#[test]
fn a_promise_needs_each_setting_that_it_depends_on() {
    with_mariadb(async {
        for (setting, exclusion) in [
            ("log_bin = log\nsync_binlog = 1", Exclusion::Restart),
            ("log_bin = log\nsync_binlog = 0", Exclusion::Nothing),
            ("innodb_doublewrite = 0", Exclusion::Nothing),
            ("innodb_flush_method = O_DIRECT_NO_FSYNC", Exclusion::Nothing),
        ] {
            let options = Options::new().with_fsync(true).with_config(setting);
            let server = server_with(&options).await?;
            let given = open(&server, "").await?.guarantees();
            assert_eq!(given.exclusion, exclusion, "{setting}");
            let plain = open(&server, "&dlock.plain=version").await?.guarantees();
            let kept = exclusion == Exclusion::Restart;
            let fencing = if kept { Fencing::Durable } else { Fencing::Volatile };
            assert_eq!(plain.fencing, fencing, "{setting}");
        }
        Ok(())
    });
}

#[test]
fn a_setting_that_changes_is_seen_while_locks_are_used() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_fsync(true)).await?;
        let (client, plain) =
            (open(&server, "").await?, open(&server, "&dlock.plain=version").await?);
        for client in [&client, &plain] {
            assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
        }
        server.run_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").await?;
        until_weaker(&client).await?;
        until_weaker(&plain).await?;
        assert_eq!(plain.guarantees().fencing, Fencing::Volatile);
        Ok(())
    });
}
