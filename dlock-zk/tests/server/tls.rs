//! Encrypted connections: which combinations work, and the errors of the others.

use std::path::{Path, PathBuf};

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::{
    Stop,
    zookeeper::{Options, ZooKeeperServer},
};
use dlock_zk::{ZkConfig, ZooKeeper};

use crate::support::{
    connect, exclusive, free, refused, run, says, take, until_it_works, works, works_fully,
};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);
const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

/// A server that speaks TLS, its URL, and the file of its authority.
async fn start(options: Options) -> Result<(ZooKeeperServer, String, String), Stop> {
    let server = ZooKeeperServer::start(&options.with_tls()).await?;
    let address = server.tls_address().ok_or("no TLS")?;
    let ca = text(&server.ca().ok_or("no authority")?);
    Ok((server, format!("zks://{address}"), ca))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn files(server: &ZooKeeperServer) -> Result<(PathBuf, PathBuf), Stop> {
    Ok(server.client_certificate().ok_or("no certificate")?)
}

/// The client's certificate and key as options of a URL.
fn pair(server: &ZooKeeperServer) -> Result<String, Stop> {
    let (certificate, key) = files(server)?;
    Ok(format!("dlock.tls_cert={}&dlock.tls_key={}", text(&certificate), text(&key)))
}

#[test]
fn locks_work_over_tls() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let options = format!("dlock.tls_ca={ca}&dlock.session_timeout=60s");
        let one = connect(&format!("{url}?{options}")).await?;
        let host = server.tls_address().ok_or("no TLS")?.replace("127.0.0.1", "localhost");
        let two = connect(&format!("zks://{host}?{options}")).await?;
        works_fully(&one, &two, "a").await?;
        assert!(one.store().starts_with("zks://127.0.0.1:"), "{}", one.store());
        let address = server.tls_address().ok_or("no TLS")?;
        let config = ZkConfig::new([address.as_str()])?.with_tls(ca.into(), None);
        let built = ZooKeeper::connect(config).await?;
        works_fully(&built, &two, "b").await?;
        // A client without TLS uses the same locks.
        let plain = connect(&format!("zk://{}", server.address())).await?;
        works_fully(&built, &plain, "c").await
    })
}

/// A server that speaks TLS may answer the credentials before it answers the connection request.
#[test]
fn credentials_are_shown_over_tls() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let url = url.replace("//", "//joe:secret@");
        let url = format!("{url}?dlock.tls_ca={ca}&dlock.session_timeout=60s");
        for _ in 0..10 {
            works(&connect(&url).await?, "a").await?;
        }
        let (client, other) = (connect(&url).await?, connect(&url).await?);
        works_fully(&client, &other, "a").await?;
        let held = exclusive("b");
        take(&client, &held).await?;
        says(&refused(&url.replace("secret", "secret2")).await?, ACCESS, "user and password");
        free(&client, &held).await?;
        for _ in 0..3 {
            server.restart().await?;
            until_it_works(&client).await?;
        }
        Ok(())
    })
}

#[test]
fn a_client_shows_its_certificate_where_the_server_wants_one() {
    run(async {
        let (server, url, ca) = start(Options::new().with_config("ssl.clientAuth=need")).await?;
        let url = format!("{url}?dlock.tls_ca={ca}&dlock.session_timeout=60s");
        works(&connect(&format!("{url}&{}", pair(&server)?)).await?, "a").await?;
        let address = server.tls_address().ok_or("no TLS")?;
        let own = Some(files(&server)?);
        let config = ZkConfig::new([address.as_str()])?.with_tls(ca.into(), own);
        works(&ZooKeeper::connect(config).await?, "a").await?;
        let short = url.replace("=60s", "=4s");
        let without = refused(&short).await?;
        let (strangers, ..) = start(Options::new()).await?;
        let with_others = refused(&format!("{short}&{}", pair(&strangers)?)).await?;
        for error in [without, with_others] {
            assert!([ACCESS, UNAVAILABLE].contains(&error.kind()), "{error:?}");
            says(&error, error.kind(), "dlock.tls_cert");
        }
        Ok(())
    })
}

#[test]
fn a_server_that_is_not_trusted_names_the_authoritys_file() {
    run(async {
        let (_server, url, _) = start(Options::new()).await?;
        let (_strangers, _, other) = start(Options::new()).await?;
        let error =
            refused(&format!("{url}?dlock.tls_ca={other}&dlock.session_timeout=4s")).await?;
        assert!([ACCESS, UNAVAILABLE].contains(&error.kind()), "{error:?}");
        says(&error, error.kind(), "dlock.tls_ca");
        let error = refused(&url).await?;
        says(&error, ErrorKind::Config(ConfigIssue::OptionValue), "dlock.tls_ca");
        Ok(())
    })
}

/// Some addresses are not valid names in a certificate.
#[test]
fn a_host_that_no_certificate_can_be_for_is_refused() {
    run(async {
        let (_server, url, ca) = start(Options::new()).await?;
        for host in ["127.1", "0x7f.1"] {
            let url = url.replace("127.0.0.1", host);
            let url = format!("{url}?dlock.tls_ca={ca}&dlock.session_timeout=4s");
            let error = refused(&url).await?;
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
            says(&error, error.kind(), host);
        }
        Ok(())
    })
}

#[test]
fn invalid_tls_files_are_named() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let (certificate, key) = files(&server)?;
        let (certificate, key) = (text(&certificate), text(&key));
        let folder = text(server.directory());
        let value = ErrorKind::Config(ConfigIssue::OptionValue);
        for (options, kind, text) in [
            ("dlock.tls_ca=/no/such/file".to_owned(), ACCESS, "/no/such/file can't be read"),
            (format!("dlock.tls_ca={folder}"), ACCESS, "can't be read"),
            (format!("dlock.tls_ca={key}"), ACCESS, "dlock.tls_"),
            (
                format!("dlock.tls_ca={ca}&dlock.tls_cert={key}&dlock.tls_key={certificate}"),
                ACCESS,
                "dlock.tls_",
            ),
            (
                format!("dlock.tls_ca={ca}&dlock.tls_cert={certificate}&dlock.tls_key={ca}"),
                ACCESS,
                "dlock.tls_",
            ),
            (format!("dlock.tls_ca={ca}&dlock.tls_cert={certificate}"), value, "go together"),
        ] {
            says(&refused(&format!("{url}?{options}")).await?, kind, text);
        }
        let plain = format!("zk://{}?dlock.tls_ca={ca}", server.address());
        says(&refused(&plain).await?, value, "zks");
        Ok(())
    })
}

#[test]
fn tls_on_one_side_only_is_reported_in_time() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let plain = url.replace("zks:", "zk:") + "?dlock.session_timeout=4s";
        let encrypted = format!("zks://{}?dlock.session_timeout=4s", server.address());
        for url in [plain, format!("{encrypted}&dlock.tls_ca={ca}")] {
            let error = refused(&url).await?;
            assert!([ACCESS, UNAVAILABLE].contains(&error.kind()), "{error:?}");
            says(&error, error.kind(), "TLS");
        }
        Ok(())
    })
}
