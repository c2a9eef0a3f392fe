//! URLs, good and bad.

use dlock_core::ErrorKind;

use super::*;

/// A text that stands for every secret.
const CANARY: &str = "hunter2";

fn read(url: &str) -> RedisConfig {
    RedisConfig::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Returns the message for a refused URL.
fn refused(url: &str, issue: ConfigIssue) -> String {
    let error = match RedisConfig::from_url(url) {
        Ok(config) => panic!("{url} is {config:?}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}: {error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(CANARY), "{shown}");
    shown
}

#[test]
fn every_scheme_is_read() {
    for (url, store) in [
        ("redis://h", "redis://h:6379"),
        ("REDIS://h:1/", "redis://h:1"),
        ("redis://h:65535/15", "redis://h:65535/15"),
        ("redis://[::1]", "redis://[::1]:6379"),
        ("redis://[2001:db8::7]:7000/2", "redis://[2001:db8::7]:7000/2"),
        ("redis://h?dlock.plain=true", "redis://h:6379 (plain)"),
        ("redis+unix:///run/redis/s.sock", "redis+unix:///run/redis/s.sock"),
        ("redis+unix://u:p@/run/a%20b%3Fc", "redis+unix:///run/a b?c"),
        ("redis+unix:///s?db=3&dlock.plain=true", "redis+unix:///s?db=3 (plain)"),
        ("redis+unix:///s?dlock.plain=true&db=0&user=u&pass=p", "redis+unix:///s (plain)"),
        ("redis+sentinel://s1/m", "redis+sentinel://s1:26379/m"),
        ("redis+sentinel://s2,s1:5/m/3", "redis+sentinel://s1:5,s2:26379/m/3"),
        ("redis+sentinel://s1/m%2Fn", "redis+sentinel://s1:26379/m/n"),
        ("redis+cluster://b,a:1", "redis+cluster://a:1,b:6379"),
        ("redis+cluster://a/0", "redis+cluster://a:6379"),
        ("redis+quorum://a,b,c/1", "redis+quorum://a:6379,b:6379,c:6379/1"),
        ("redis+quorum://a:1,a:2,a:3,a:4,a:5", "redis+quorum://a:1,a:2,a:3,a:4,a:5"),
    ] {
        assert_eq!(read(url).store(), store, "{url}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn every_scheme_has_a_form_with_tls() {
    for (url, store) in [
        ("rediss://h", "rediss://h:6379"),
        ("rediss+sentinel://s/m", "rediss+sentinel://s:26379/m"),
        ("rediss+cluster://h", "rediss+cluster://h:6379"),
        ("rediss+quorum://a,b,c", "rediss+quorum://a:6379,b:6379,c:6379"),
    ] {
        assert_eq!(read(url).store(), store, "{url}");
    }
    let files =
        read("rediss://h?dlock.tls_ca=/a%20b&dlock.tls_cert=c&dlock.tls_key=k").tls.unwrap();
    assert_eq!(files.authorities, Some("/a b".into()));
    assert_eq!(files.certificate, Some(("c".into(), "k".into())));
    for option in ["dlock.tls_cert=c", "dlock.tls_key=k"] {
        refused(&format!("rediss://h?{option}"), ConfigIssue::OptionValue);
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn without_the_feature_tls_names_it() {
    for scheme in ["rediss", "rediss+sentinel", "rediss+cluster", "rediss+quorum"] {
        let url = format!("{scheme}://:{CANARY}@a,b,c/m");
        assert!(refused(&url, ConfigIssue::MissingFeature).contains("\"tls\""));
    }
}

#[test]
fn users_and_passwords_are_decoded_and_not_shown() {
    for (login, user, password) in [
        ("", None, None),
        (":@", None, None),
        (":hunter2@", None, Some("hunter2")),
        ("joe:hunter2@", Some("joe"), Some("hunter2")),
        ("j%40e:%68unter2%2F%3F%23%40%3A%25%C3%A9@", Some("j@e"), Some("hunter2/?#@:%é")),
        // Only a slash and a question mark have to be encoded.
        ("joe:hunter2:@#&@", Some("joe"), Some("hunter2:@#&")),
    ] {
        for url in
            ["redis://@h/0", "redis+unix://@/s", "redis+sentinel://@s/m", "redis+quorum://@a,b,c"]
        {
            let url = url.replacen('@', login, 1);
            let config = read(&url);
            assert_eq!(config.login.user.as_deref(), user, "{url}");
            assert_eq!(config.login.password.as_deref(), password, "{url}");
            let shown = format!("{config:?} {}", config.store());
            assert!(!shown.contains(CANARY), "{shown}");
        }
    }
}

#[test]
fn sentinels_have_their_own_login() {
    let config = read(
        "redis+sentinel://joe:a@s/m?dlock.sentinel_user=sue&dlock.sentinel_password=hunter2%26%3D",
    );
    assert_eq!(config.login.user.as_deref(), Some("joe"));
    assert_eq!(config.sentinel_login.user.as_deref(), Some("sue"));
    assert_eq!(config.sentinel_login.password.as_deref(), Some("hunter2&="));
    assert!(!format!("{config:?}").contains(CANARY));
    let option = ConfigIssue::OptionValue;
    assert!(refused("redis+sentinel://s/m?dlock.sentinel_user=sue", option).contains("password"));
    for url in ["redis://h", "redis+unix:///s", "redis+cluster://h", "redis+quorum://a,b,c"] {
        let url = format!("{url}?dlock.sentinel_password=hunter2");
        assert!(refused(&url, option).contains("redis+sentinel"), "{url}");
    }
}

#[test]
fn malformed_urls_are_refused_without_their_secrets() {
    for url in [
        "redis:h",
        "redis:/h",
        "redis://",
        "redis:///0",
        "redis://:hunter2@",
        "redis://:hunter2@/0",
        "redis://:hun/hunter2@h",
        "redis://:a@b/hunter2@h",
        "redis+sentinel://:a@b/hunter2@s/m",
        "redis+unix://:a@/b/hunter2@/s",
        "redis://:hunter2@h:+1",
        "redis://:%ffhunter2@h",
        "redis://%ff:hunter2@h",
        // The driver would leave out a user without a password.
        "redis://hunter2@h",
        "redis://joe:@h",
        "redis://:hunter2@h:0",
        "redis://:hunter2@h:65536",
        "redis://:hunter2@h:x",
        "redis://:hunter2@h:",
        "redis://:hunter2@h:1:2",
        "redis://:hunter2@::1",
        "redis://:hunter2@[::1",
        "redis://:hunter2@[::1]x",
        "redis://:hunter2@[h]",
        "redis://:hunter2@[]:1",
        "redis://:hunter2@a b",
        "redis://:hunter2@h/x",
        "redis://:hunter2@h/-1",
        "redis://:hunter2@h/99999999999999999999",
        "redis://:hunter2@h/0/1",
        "redis://:hunter2@h/0#hunter2",
        "redis://:hunter2@a,b",
        "redis://:hunter2@a,",
        "redis+unix://:hunter2@",
        "redis+unix://:hunter2@h",
        "redis+unix://localhost/s",
        "redis+unix://joe@/s",
        "redis+unix:/s",
        "redis+unix:///s?db=x&pass=hunter2",
        "redis+unix:///s?db=-1&pass=hunter2",
        "redis+unix:///s?db=&pass=hunter2",
        "redis+unix:///s?user=joe",
        "redis+unix://:a@/s?pass=hunter2",
        "redis+unix:///s?pass=hunter2%zz",
        "redis+sentinel://:hunter2@s",
        "redis+sentinel://:hunter2@s/",
        "redis+sentinel://:hunter2@s/m/x",
        "redis+sentinel://:hunter2@s/m/0/x",
        "redis+sentinel://:hunter2@s,/m",
        "redis+cluster://:hunter2@a,b/1",
        "redis+quorum://:hunter2@a",
        "redis+quorum://:hunter2@a,b",
        "redis+quorum://:hunter2@a,b,c,d",
        "redis+quorum://:hunter2@a,b,a:6379",
        "redis+quorum://:hunter2@a:7,b,a:007",
        "redis+quorum://:hunter2@[::1],b,[0::1]",
    ] {
        refused(url, ConfigIssue::Url);
    }
}

#[test]
fn unknown_repeated_and_invalid_options_are_refused() {
    use ConfigIssue::{OptionValue, RepeatedOption, UnknownOption, UnknownScheme};
    for (url, issue, remedy) in [
        ("valkey://:hunter2@h", UnknownScheme, "redis, rediss, redis+unix"),
        ("redis+tls://:hunter2@h", UnknownScheme, "rediss"),
        ("redis+unix+x://:hunter2@h", UnknownScheme, "redis+unix"),
        ("redis://:hunter2@h?dlock.durabilty=1", UnknownOption, "dlock.durability"),
        ("redis://:hunter2@h?db=1", UnknownOption, "after it"),
        ("redis+unix:///s?pass=a&hunter2", UnknownOption, "%26"),
        ("redis+unix:///s?pass=hunter2&password=hunter2", RepeatedOption, "remove one"),
        ("redis://:hunt?hunter2@h", ConfigIssue::Url, "? as %3F"),
        ("redis+quorum://:hunter2@a,b,a:6379", ConfigIssue::Url, "a master is given twice"),
        ("redis://:hunter2@h?dlock.plain=true&dlock.plain=true", RepeatedOption, "dlock.plain"),
        (
            "redis+sentinel://s/m?dlock.sentinel_password=hunter2&dlock.sentinel_password=hunter2",
            RepeatedOption,
            "is given twice in the URL: write it once",
        ),
        ("redis://:hunter2@h?dlock.plain=yes", OptionValue, "true or false"),
        ("redis://:hunter2@h?dlock.plain", OptionValue, "true or false"),
        ("redis://:hunter2@h?dlock.response_timeout=5", OptionValue, "30s"),
        ("redis://:hunter2@h?dlock.response_timeout=1ms", OptionValue, "10ms to 1m"),
        ("redis://:hunter2@h?dlock.response_timeout=61s", OptionValue, "10ms to 1m"),
        ("redis://:hunter2@h?dlock.restart_guard=25h", OptionValue, "to 24h"),
        ("redis://:hunter2@h?dlock.restart_guard=-1s", OptionValue, "30s"),
        ("redis://:hunter2@h?dlock.durability=all", OptionValue, "majority"),
        ("redis://:hunter2@h?dlock.durability=-1", OptionValue, "majority"),
        ("redis://:hunter2@h?dlock.durability=65", OptionValue, "up to 64"),
        ("redis://:hunter2@h?dlock.durability=%ff", OptionValue, "UTF-8"),
        ("redis://:hunter2@h?dlock.tls_ca=/ca", OptionValue, "rediss"),
        ("redis://h?dlock.plain=true&dlock.durability=1", OptionValue, "dlock.durability"),
        ("redis+quorum://a,b,c?dlock.durability=1", OptionValue, "replicas"),
        ("redis+quorum://a,b,c?dlock.plain=true", OptionValue, "plain"),
        ("redis+cluster://a?dlock.plain=true", OptionValue, "plain"),
        ("redis+cluster://a?dlock.restart_guard=1s", OptionValue, "restart"),
    ] {
        let shown = refused(url, issue);
        assert!(shown.contains(remedy), "{url}: no {remedy} in {shown}");
    }
}

#[test]
fn each_option_sets_its_value() {
    let config = read(
        "redis://h?dlock.durability=2&dlock.response_timeout=500ms&\
         dlock.restart_guard=40s",
    );
    assert_eq!(config.durability, Durability::Replicas(2));
    assert_eq!(config.response_timeout, Duration::from_millis(500));
    assert_eq!(config.restart_guard, Some(Duration::from_secs(40)));
    for (text, durability) in [
        ("0", Durability::Master),
        ("master", Durability::Master),
        ("majority", Durability::Majority),
    ] {
        assert_eq!(read(&format!("redis://h?dlock.durability={text}")).durability, durability);
    }
    assert!(read("redis://h?dlock.plain=true").plain);
}

#[test]
fn a_socket_url_has_its_login_before_or_behind_the_path() {
    for url in [
        "redis+unix://joe:p%26%2F@/s?db=2",
        "redis+unix:///s?user=joe&pass=p%26%2F&db=2",
        "redis+unix://@/s?db=2&password=p%26%2F&user=joe",
    ] {
        let config = read(url);
        assert_eq!(config.database, 2, "{url}");
        assert_eq!(config.login.user.as_deref(), Some("joe"), "{url}");
        assert_eq!(config.login.password.as_deref(), Some("p&/"), "{url}");
        assert!(!format!("{config:?}").contains("p&/"), "{config:?}");
    }
    let config = read("redis+unix:///s?pass=p");
    assert_eq!((config.login.user, config.login.password.as_deref()), (None, Some("p")));
}
