//! Encrypted connections.

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::{
    Stop,
    postgres::{Options, PostgresServer},
};

use crate::support::{connect, refused, run, says, server, works};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// A server that requires TLS and its standard hash of passwords, and its URL.
async fn encrypted() -> Result<(PostgresServer, String), Stop> {
    let server = PostgresServer::start(&Options::new().with_tls()).await?;
    let password = "set password_encryption = 'scram-sha-256'; alter role dlock password 'secret'";
    server.run_sql(password).await?;
    let hba = server.directory().join("data/pg_hba.conf");
    std::fs::write(hba, "hostssl all all all scram-sha-256\n")?;
    server.restart().await?;
    let url = server.tls_url().ok_or_else(|| Stop::failed("no TLS"))?;
    Ok((server, url))
}

#[test]
fn a_server_with_the_right_certificate_is_accepted() {
    run(async {
        let (_server, url) = encrypted().await?;
        let client = connect(&format!("{url}&dlock.create_schema=true")).await?;
        works(&client, "a").await?;
        for mode in ["require", "verify-ca"] {
            works(&connect(&url.replace("verify-full", mode)).await?, "a").await?;
        }
        Ok(())
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    run(async {
        let (_server, url) = encrypted().await?;
        let (other, _) = encrypted().await?;
        let ca = other.ca().ok_or_else(|| Stop::failed("no TLS"))?;
        let (address, _) = url.split_once('?').ok_or_else(|| Stop::failed("no options"))?;
        let url = format!("{address}?sslmode=verify-full&sslrootcert=");
        says(&refused(&format!("{url}{}", ca.display())).await?, ACCESS, "sslrootcert");
        let nowhere = format!("{url}/nowhere.pem&dlock.response_timeout=1s");
        says(&refused(&nowhere).await?, ErrorKind::Unavailable, "file for TLS");
        Ok(())
    });
}

#[test]
fn a_server_without_tls_is_refused() {
    run(async {
        let server = server().await?;
        let url = format!("{}?sslmode=require", server.url());
        says(&refused(&url).await?, ACCESS, "ssl=on");
        Ok(())
    });
}

#[test]
fn a_server_that_requires_tls_is_reported() {
    run(async {
        let (server, _) = encrypted().await?;
        says(&refused(&server.url()).await?, ACCESS, "sslmode");
        Ok(())
    });
}

/// The certificate is for `localhost` and for 127.0.0.1, so an attempt by address at 127.0.0.3
/// would fail.
#[cfg(target_os = "linux")]
#[test]
fn a_silent_address_does_not_matter_with_tls() {
    use dlock_testlab::{rerun_with_addresses, server_of_rerun};

    use crate::servers::connections::silent;

    const TEST: &str = "tls::a_silent_address_does_not_matter_with_tls";
    run(async {
        if let Some(url) = server_of_rerun() {
            return works(&connect(&url).await?, "a").await;
        }
        let options =
            Options::new().with_tls().with_config("listen_addresses = '127.0.0.1,127.0.0.3'");
        let server = PostgresServer::start(&options).await?;
        let _silent = silent(server.port()).await?;
        let url = server.tls_url().ok_or_else(|| Stop::failed("no TLS"))?;
        let by_address = refused(&url.replace("127.0.0.1", "127.0.0.3")).await?;
        says(&by_address, ACCESS, "sslrootcert");
        let url = url.replace("127.0.0.1", "localhost");
        let url = format!("{url}&dlock.create_schema=true");
        rerun_with_addresses(TEST, &url, &["::1", "127.0.0.3"]).await
    });
}
