//! Encrypted connections.

use dlock_core::ConfigIssue::Access;
use dlock_sql::Mysql;
use dlock_testlab::{Stop, mariadb::Options};

use crate::support::{config, exclusive, refused, server_with, take, with_mariadb};

#[test]
fn a_trusted_certificate_is_accepted() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_tls()).await?;
        let url = server.tls_url().ok_or_else(|| Stop::failed("no TLS"))?;
        let client = Mysql::open(config(&url)?).await?;
        take(&client, &exclusive("x")).await?;
        let url = format!("{}?ssl-mode=REQUIRED", server.url());
        Mysql::open(config(&url)?).await?;
        Ok(())
    });
}

#[test]
fn an_untrusted_certificate_is_refused() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_tls()).await?;
        let url = format!("{}?ssl-mode=VERIFY_IDENTITY", server.url());
        refused(config(&url)?, Access, "ssl-ca").await
    });
}

#[test]
fn a_server_without_tls_is_refused() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("skip_ssl")).await?;
        let url = format!("{}?ssl-mode=REQUIRED", server.url());
        refused(config(&url)?, Access, "ssl-mode=DISABLED").await
    });
}
