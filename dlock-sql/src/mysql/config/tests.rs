use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind};

use super::*;

fn read(url: &str) -> Result<MysqlConfig, Error> {
    MysqlConfig::from_url(&url.parse()?)
}

#[test]
fn a_url_names_the_store_without_secrets() {
    for (url, store) in [
        ("mysql://u:hunter2@localhost/locks", "mysql://localhost:3306/locks"),
        ("mariadb://u:hunter2@127.0.0.1:33/a%20b", "mysql://127.0.0.1:33/a b"),
        ("mysql://u@[::1]:33/locks", "mysql://[::1]:33/locks"),
        ("mysql://u:hunter2@db/locks?ssl-mode=DISABLED", "mysql://db:3306/locks"),
        ("mysql://u:hunter2@db/locks?sslmode=disabled&timezone=UTC", "mysql://db:3306/locks"),
        ("mysql://u@localhost/locks?socket=/run/s.sock", "mysql:/run/s.sock/locks"),
        ("mysql://u:hunter2@/locks?socket=/run/s.sock", "mysql:/run/s.sock/locks"),
    ] {
        let config = read(url).unwrap();
        assert_eq!(config.store, store);
        assert!(!format!("{config:?} {:?}", config.driver).contains("hunter2"));
    }
}

#[test]
fn the_driver_gets_an_ipv6_address_without_brackets() {
    for url in ["mysql://u@[::1]/l", "mariadb://u:hunter2@[::1]:7/l"] {
        assert_eq!(read(url).unwrap().driver.options.get_host(), "::1", "{url}");
    }
}

#[test]
fn our_options_are_taken() {
    let config = read(
        "mysql://u@localhost/l?dlock.create_schema=true&dlock.connections=3\
         &dlock.response_timeout=1s&dlock.retention=1h&dlock.durability=full",
    )
    .unwrap();
    assert!(config.create_schema);
    assert_eq!(config.connections, 3);
    assert_eq!(
        (config.response_timeout, config.retention),
        (Duration::from_secs(1), Duration::from_secs(3600))
    );
    assert_eq!(config.with_returning(false).driver.returning, Some(false));
}

#[test]
fn an_unusable_url_is_refused_with_a_remedy() {
    use ConfigIssue::{OptionValue, RepeatedOption, UnknownOption, Url};

    for (url, issue, says) in [
        ("mysql://u@localhost", Url, "no database"),
        ("mysql://u@localhost/", Url, "/database"),
        ("mysql://u@/l", Url, "socket=/run/mysqld/mysqld.sock"),
        ("mysql://localhost/l", Url, "no user"),
        ("mysql://:hunter2@localhost/l", Url, "no user"),
        ("mysql://u:a@b/hunter2@localhost/l", Url, "follows the first /"),
        ("mysql://u:?hunter2&dlock.a=@localhost/l", Url, "? as %3F"),
        ("mysql:locks", Url, "mysql://user"),
        ("mysql://u:hunt/er2@localhost/l", Url, "percent-encode /"),
        ("mysql://u:hunt?er2@localhost/l", Url, "percent-encode /"),
        ("mysql://u:hunt#er2@localhost/l", Url, "percent-encode /"),
        ("mysql://u@db/l?ssl-ca=/a#b&ssl-mode=VERIFY_IDENTITY", Url, "%23"),
        ("mysql://u@db/l#?ssl-mode=VERIFY_CA", Url, "%23"),
        ("mysql://u:hunter2@localhost:x/l", Url, "host:port"),
        ("mysql://u:%ff@localhost/l", Url, "percent-encode /"),
        ("mysql://u:hunter2@db/l", OptionValue, "ssl-mode=VERIFY_IDENTITY"),
        ("mysql://u:hunter2@db/l?ssl-mode=PREFERRED", OptionValue, "VERIFY_IDENTITY"),
        ("mysql://u@db/l?ssl-mode=on", OptionValue, "VERIFY_IDENTITY"),
        ("mysql://u@localhost/l?ssl-ca=/ca", OptionValue, "ssl-ca"),
        ("mysql://u@localhost/l?ssl-mode=DISABLED&sslmode=DISABLED", RepeatedOption, "once"),
        ("mysql://u@localhost/l?usessl=false", UnknownOption, "usessl; use one of ssl-mode"),
        ("mysql://u@localhost/l?dlock.durability=relaxed", OptionValue, "trx_commit=2"),
        ("mysql://u@localhost/l?dlock.durability=some", OptionValue, "full or relaxed"),
        ("mysql://u@localhost/l?dlock.connections=0", OptionValue, "1 to 16"),
    ] {
        let error = read(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
        for secret in ["hunt", "er2"] {
            assert!(!format!("{error} {error:?}").contains(secret), "{url}: {error:?}");
        }
    }
}

#[test]
fn tls_options_need_the_feature() {
    for mode in ["REQUIRED", "verify_ca", "VERIFY_IDENTITY&ssl-ca=/ca&ssl-cert=/c&ssl-key=/k"] {
        let read = read(&format!("mysql://u@db/l?ssl-mode={mode}"));
        assert_eq!(read.is_ok(), cfg!(feature = "tls"), "{read:?}");
        if let Err(error) = read {
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::MissingFeature));
        }
    }
}
