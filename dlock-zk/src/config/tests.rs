use dlock_core::ErrorKind;

use super::*;

fn read(url: &str) -> ZkConfig {
    ZkConfig::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn issue(url: &str) -> ConfigIssue {
    let error = ZkConfig::from_url(url).expect_err(url);
    match error.kind() {
        ErrorKind::Config(issue) => issue,
        kind => panic!("{url}: {kind:?}"),
    }
}

#[test]
fn a_url_has_hosts_chroot_and_credentials() {
    let config = read("zk://us%40er:p%3Aw@z1,z2:2182,[::1]/shop/eu?dlock.root=locks/");
    assert_eq!(config.hosts, ["z1:2181", "z2:2182", "[::1]:2181"]);
    assert_eq!((config.chroot.as_str(), config.root.as_str()), ("/shop/eu", "/locks"));
    assert_eq!(config.login.as_deref(), Some("us@er:p:w"));
    assert_eq!(config.cluster(&config.hosts), "z1:2181,z2:2182,[::1]:2181/shop/eu");
    assert_eq!(config.acl(), Acl::Creator);
}

#[test]
fn a_missing_option_has_a_default() {
    let config = read("zk://host");
    assert_eq!((config.chroot.as_str(), config.root.as_str()), ("", "/dlock"));
    assert_eq!(config.session_timeout, Duration::from_secs(15));
    assert_eq!(config.acl(), Acl::Open);
    assert_eq!(config.store(), "zk://host:2181/dlock");
    assert_eq!(read("zk://host/?dlock.root=/").store(), "zk://host:2181");
}

#[test]
fn the_builder_says_the_same() {
    let config = ZkConfig::new(["b", "a:7"]).unwrap().with_chroot("/x/").with_root("y");
    assert_eq!(config.store(), "zk://a:7,b:2181/x/y");
    assert!(config.with_acl("nonsense").is_err());
}

#[test]
fn a_wrong_url_is_refused() {
    use ConfigIssue::{OptionValue, UnknownOption, UnknownScheme, Url};
    for (url, expected) in [
        ("zk:host", Url),
        ("zk://", Url),
        ("zk://a,,b", Url),
        ("zk://a:port", Url),
        ("zk://a:0", Url),
        ("zk://[::x]", Url),
        ("zk://user@a", Url),
        ("zk://:pw@a", Url),
        ("zk://a%3Ab:pw@h", Url),
        ("zk://user:a@b/c@h", Url),
        ("zk://user:a@b?dlock.root=c@h", Url),
        ("zk://a/%ff", Url),
        ("zookeeper://a", UnknownScheme),
        ("zk://a?timeout=1", UnknownOption),
        ("zk://a?dlock.sessiontimeout=1s", UnknownOption),
        ("zk://a?dlock.session_timeout=soon", OptionValue),
        ("zk://a?dlock.session_timeout=999ms", OptionValue),
        ("zk://a?dlock.session_timeout=2h", OptionValue),
        ("zk://a/x//y", OptionValue),
        ("zk://a?dlock.root=/a/../b", OptionValue),
        ("zk://a?dlock.root=/a%00", OptionValue),
        ("zk://a?dlock.root=/zookeeper/x", OptionValue),
        ("zk://a?dlock.acl=creator", OptionValue),
        ("zk://a?dlock.acl=world:anyone", OptionValue),
        ("zk://a?dlock.acl=world:anyone:x", OptionValue),
        ("zk://a?dlock.acl=", OptionValue),
        ("zk://a?dlock.tls_ca=x", OptionValue),
        ("zks://a?dlock.tls_cert=x", OptionValue),
    ] {
        assert_eq!(issue(url), expected, "{url}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn tls_needs_an_authority() {
    assert_eq!(issue("zks://a"), ConfigIssue::OptionValue);
    assert!(read("zks://a?dlock.tls_ca=/ca.pem").tls.is_some());
}

#[test]
#[cfg(not(feature = "tls"))]
fn tls_needs_its_feature() {
    assert_eq!(issue("zks://a?dlock.tls_ca=/ca.pem"), ConfigIssue::MissingFeature);
}

#[test]
fn no_password_is_shown() {
    let config = read("zk://user:hunter2@a");
    assert!(!format!("{config:?} {}", config.store()).contains("hunter2"));
    for url in ["zk://user:hunter2@a?dlock.x=1", "zk://user:hunter2@", "zkx://user:hunter2@a"] {
        let error = ZkConfig::from_url(url).expect_err(url);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
