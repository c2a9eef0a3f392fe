//! Encrypted connections: which combinations work, and the errors of the others.

use std::path::Path;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisServer},
};

use crate::support::{connect, refused, run, says, works, works_fully};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// A server that speaks TLS, its URL, and the file of its authority.
async fn start(options: Options) -> Result<(RedisServer, String, String), Stop> {
    let server = RedisServer::start(&options.with_tls()).await?;
    let url = server.tls_url().ok_or("no TLS")?;
    let ca = text(&server.ca().ok_or("no authority")?);
    Ok((server, url, ca))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The client's certificate and key as options of a URL.
fn pair(server: &RedisServer) -> Result<String, Stop> {
    let (certificate, key) = server.client_certificate().ok_or("no certificate")?;
    Ok(format!("dlock.tls_cert={}&dlock.tls_key={}", text(&certificate), text(&key)))
}

#[test]
fn locks_work_over_tls() {
    run(async {
        let (_server, url, ca) = start(Options::new().with_password("p")).await?;
        let url = format!("{url}/2?dlock.tls_ca={ca}");
        let (one, two) = (connect(&url).await?, connect(&url).await?);
        works_fully(&one, &two, "a").await?;
        assert!(one.store().starts_with("rediss://127.0.0.1:"), "{}", one.store());
        let named = url.replace("127.0.0.1", "localhost");
        works(&connect(&named).await?, "a").await?;
        works(&connect(&format!("{url}&dlock.plain=true")).await?, "b").await
    })
}

#[test]
fn a_client_presents_its_certificate_if_required() {
    run(async {
        let (server, url, ca) = start(Options::new().with_config("tls-auth-clients yes")).await?;
        let url = format!("{url}?dlock.tls_ca={ca}");
        works(&connect(&format!("{url}&{}", pair(&server)?)).await?, "a").await?;
        says(&refused(&url).await?, ACCESS, "dlock.tls_cert and dlock.tls_key");
        let (strangers, ..) = start(Options::new()).await?;
        let error = refused(&format!("{url}&{}", pair(&strangers)?)).await?;
        says(&error, ACCESS, "dlock.tls_cert and dlock.tls_key");
        Ok(())
    })
}

#[test]
fn an_untrusted_server_names_the_option_for_the_authority() {
    run(async {
        let options = Options::new().with_config("bind 127.0.0.1 127.0.0.2");
        let (_server, url, ca) = start(options).await?;
        let (_strangers, _, other) = start(Options::new()).await?;
        for url in [url.clone(), format!("{url}?dlock.tls_ca={other}")] {
            says(&refused(&url).await?, ACCESS, "dlock.tls_ca");
        }
        let elsewhere = url.replace("127.0.0.1", "127.0.0.2");
        let error = refused(&format!("{elsewhere}?dlock.tls_ca={ca}")).await?;
        says(&error, ACCESS, "the host name of the certificate");
        Ok(())
    })
}

#[test]
fn invalid_certificate_files_are_named() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let (certificate, key) = server.client_certificate().ok_or("no certificate")?;
        let (certificate, key) = (text(&certificate), text(&key));
        let folder = text(server.directory());
        for (options, file) in [
            ("dlock.tls_ca=/no/such/file".to_owned(), "dlock.tls_ca can't be read"),
            (format!("dlock.tls_ca={folder}"), "dlock.tls_ca can't be read"),
            (format!("dlock.tls_ca={key}"), "dlock.tls_ca holds no CERTIFICATE"),
            (
                format!("dlock.tls_ca={ca}&dlock.tls_cert={key}&dlock.tls_key={certificate}"),
                "dlock.tls_cert holds no CERTIFICATE",
            ),
            (
                format!("dlock.tls_ca={ca}&dlock.tls_cert={certificate}&dlock.tls_key={ca}"),
                "dlock.tls_key holds no PRIVATE KEY",
            ),
        ] {
            for scheme in ["rediss", "rediss+cluster"] {
                let url = url.replace("rediss", scheme);
                says(&refused(&format!("{url}?{options}")).await?, ACCESS, file);
            }
        }
        Ok(())
    })
}

#[test]
fn tls_on_one_side_only_is_reported_in_time() {
    run(async {
        let (server, url, ca) = start(Options::new()).await?;
        let without = refused(&url.replace("rediss", "redis")).await?;
        says(&without, ErrorKind::Unavailable, "expects TLS on this port (rediss://)");
        // A server without TLS takes the handshake for a command, and waits for the end of the
        // line.
        let with = server.url().replace("redis:", "rediss:");
        let with = format!("{with}?dlock.tls_ca={ca}&dlock.response_timeout=500ms");
        let error = refused(&with).await?;
        let error = error.to_string();
        assert!(["speak", "expects"].iter().any(|verb| error.contains(verb)), "{error}");
        assert!(error.contains("TLS on this port"), "{error}");
        Ok(())
    })
}
