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

/// The certificate is for `localhost` and for 127.0.0.1, but not for 127.0.0.3.
#[cfg(target_os = "linux")]
#[test]
fn a_silent_address_does_not_matter_with_tls() {
    use dlock_testlab::{rerun_with_addresses, server_of_rerun};

    use crate::servers::connections::silent;

    const TEST: &str = "tls::a_silent_address_does_not_matter_with_tls";
    with_mariadb(async {
        if let Some(url) = server_of_rerun() {
            let client = Mysql::open(config(&url)?).await?;
            take(&client, &exclusive("a")).await?;
            return Ok(());
        }
        let options = Options::new().with_tls().with_config("bind_address = 0.0.0.0");
        let server = server_with(&options).await?;
        let url = server.tls_url().ok_or_else(|| Stop::failed("no TLS"))?;
        let by_address = url.replace("127.0.0.1", "127.0.0.3");
        assert!(Mysql::open(config(&by_address)?).await.is_err());
        let _silent = silent(server.port()).await?;
        rerun_with_addresses(TEST, &url.replace("127.0.0.1", "localhost"), &["::1", "127.0.0.3"])
            .await
    });
}
