//! Encrypted connections: which combinations work, and the errors of the others.

use std::path::Path;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_etcd::{Etcd, EtcdConfig};
use dlock_testlab::{
    Stop,
    etcd::{EtcdServer, Options},
};

use crate::support::{connect, refused, run, says, works};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);
const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

/// A server that speaks TLS, its URL, and the file of its authority.
async fn start(options: Options) -> Result<(EtcdServer, String, String), Stop> {
    let server = EtcdServer::start(&options.with_tls()).await?;
    let address = server.tls_address().ok_or("no TLS")?;
    let ca = text(&server.ca().ok_or("no authority")?);
    Ok((server, format!("etcds://{address}"), ca))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn locks_work_over_tls() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let one = connect(&format!("{url}?dlock.tls_ca={ca}")).await?;
        works(&one, "a").await?;
        assert!(one.store().starts_with("etcds://127.0.0.1:"), "{}", one.store());
        let by_name = url.replace("127.0.0.1", "localhost");
        works(&connect(&format!("{by_name}?dlock.tls_ca={ca}")).await?, "a").await?;
        let address = server.tls_address().ok_or("no TLS")?;
        let config = EtcdConfig::new([address.as_str()])?.with_tls(ca.into(), None);
        works(&Etcd::connect(config).await?, "a").await
    });
}

#[test]
fn wrong_authorities_ports_and_names_are_refused() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let (other, _, foreign) = start(Options::new()).await?;
        let error = refused(&format!("{url}?dlock.tls_ca={foreign}")).await?;
        says(&error, UNAVAILABLE, "invalid peer certificate");
        drop(other);
        let plain = format!("etcds://{}?dlock.tls_ca={ca}", server.address());
        says(&refused(&plain).await?, UNAVAILABLE, "the port is one for TLS");
        let secure = url.replace("etcds:", "etcd:");
        says(&refused(&secure).await?, UNAVAILABLE, "use etcds");
        for (file, says_what) in [("/nowhere.pem", "/nowhere.pem"), ("/dev/null", "no certificate")]
        {
            says(&refused(&format!("{url}?dlock.tls_ca={file}")).await?, ACCESS, says_what);
        }
        let odd = format!("etcds://127.1?dlock.tls_ca={ca}");
        says(&refused(&odd).await?, ErrorKind::Config(ConfigIssue::Url), "host name");
        let none = ErrorKind::Config(ConfigIssue::OptionValue);
        says(&refused(&url).await?, none, "dlock.tls_ca");
        Ok(())
    });
}

#[test]
fn client_certificates_are_shown_to_the_server() {
    run(async {
        let (server, url, ca) = start(Options::new().with_client_certificates()).await?;
        let (certificate, key) = server.client_certificate().ok_or("no certificate")?;
        let (certificate, key) = (text(&certificate), text(&key));
        let url = format!("{url}?dlock.tls_ca={ca}");
        let own = format!("{url}&dlock.tls_cert={certificate}&dlock.tls_key={key}");
        works(&connect(&own).await?, "a").await?;
        says(&refused(&url).await?, UNAVAILABLE, "dlock.tls_cert");
        let swapped = format!("{url}&dlock.tls_cert={key}&dlock.tls_key={certificate}");
        says(&refused(&swapped).await?, ACCESS, "PEM files");
        Ok(())
    });
}
