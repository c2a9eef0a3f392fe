//! Users with the least rights.

use std::time::Duration;

use dlock_core::ConfigIssue::Access;
use dlock_sql::Mysql;
use dlock_testlab::{Verdict, mariadb::MariadbServer, rights::claims_end_after_a_refusal};

use crate::support::{ask, config, free, granted, queue, refused, server, take, with_mariadb};

async fn make_user(server: &MariadbServer, name: &str, rights: &[&str]) -> Verdict {
    let mut sql = format!(
        "CREATE USER {name}@'%' IDENTIFIED BY 'secret'; \
         GRANT SELECT ON dlock.dlock_schema TO {name}@'%';"
    );
    for right in rights {
        sql += &format!("GRANT {right} ON dlock.dlock_lock TO {name}@'%';");
    }
    server.run_sql(&sql).await
}

#[test]
fn a_user_with_the_least_rights_can_lock() {
    with_mariadb(async {
        let server = server().await?;
        make_user(&server, "least", &["SELECT", "INSERT", "UPDATE", "DELETE"]).await?;
        let url = server.url_of("least", "secret", "dlock");
        assert!(server.query_at(&url, "CREATE TABLE x (y INT)").await.is_err());
        for returning in [true, false] {
            let config = config(&url)?.with_returning(returning).with_create_schema(true);
            let (a, b) = (Mysql::open(config.clone()).await?, Mysql::open(config).await?);
            let (first, second) = (ask("x"), ask("x"));
            take(&a, &first).await?;
            queue(&b, &second).await?;
            free(&a, &first).await?;
            granted(&b, &second).await?;
            free(&b, &second).await?;
            for answer in a.acquire_all(&[ask("y"), ask("z")]).expect("known").await? {
                assert!(matches!(answer, dlock_core::Acquired::Granted(_)), "{answer:?}");
            }
            server.run_sql("DELETE FROM dlock_lock").await?;
        }
        Ok(())
    });
}

#[test]
fn each_missing_right_is_named() {
    with_mariadb(async {
        let server = server().await?;
        let all = ["SELECT", "INSERT", "UPDATE", "DELETE"];
        for missing in ["INSERT", "UPDATE", "DELETE"] {
            let rights: Vec<_> = all.into_iter().filter(|right| *right != missing).collect();
            let user = format!("no_{missing}");
            make_user(&server, &user, &rights).await?;
            let config = config(&server.url_of(&user, "secret", "dlock"))?;
            let remedy = format!("GRANT {missing} ON dlock_lock");
            refused(config, Access, remedy.leak()).await?;
        }
        make_user(&server, "looks", &["SELECT"]).await?;
        let config = config(&server.url_of("looks", "secret", "dlock"))?;
        refused(config, Access, "GRANT INSERT, UPDATE, DELETE ON dlock_lock").await
    });
}

#[test]
fn claims_whose_release_is_refused_end_with_their_leases() {
    with_mariadb(async {
        let server = server().await?;
        make_user(&server, "edited", &["SELECT", "INSERT", "UPDATE", "DELETE"]).await?;
        let client = Mysql::open(config(&server.url_of("edited", "secret", "dlock"))?).await?;
        let other = Mysql::open(config(&server.url())?).await?;
        claims_end_after_a_refusal(&client, &other, Duration::from_secs(3), async |on| {
            let verb = if on { "GRANT" } else { "REVOKE" };
            let whom = if on { "TO" } else { "FROM" };
            let rights = "SELECT, INSERT, UPDATE, DELETE ON dlock.dlock_lock";
            server.run_sql(&format!("{verb} {rights} {whom} edited@'%'")).await
        })
        .await
    });
}
