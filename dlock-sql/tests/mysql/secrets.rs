//! No output contains the password.

use std::{error::Error as _, time::Duration};

use dlock_core::Error;
use dlock_sql::Mysql;

use crate::support::{ask, config, server, with_mariadb};

/// An error as people print it, with all its sources.
fn printed(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!("{error} {error:?}");
        source = error.source();
    }
    text
}

#[test]
fn the_password_is_shown_nowhere() {
    with_mariadb(async {
        let server = server().await?;
        let make = "CREATE USER u@'%' IDENTIFIED BY 'hunter2'; GRANT ALL ON dlock.* TO u@'%'";
        server.run_sql(make).await?;
        let right = config(&server.url_of("u", "hunter2", "dlock"))?
            .with_response_timeout(Duration::from_secs(5));
        let mut shown = format!("{right:?} {right:#?}");
        let client = Mysql::open(right.clone()).await?;
        shown += client.store();
        let wrong = config(&server.url_of("u", "hunter2x", "dlock"))?;
        shown += &printed(&Mysql::open(wrong).await.expect_err("wrong"));
        server.kill();
        shown += &printed(&client.acquire(&ask("x")).await.expect_err("no server"));
        shown += &printed(&Mysql::open(right).await.expect_err("no server"));
        assert!(!shown.contains("hunter2"), "{shown}");
        Ok(())
    });
}
