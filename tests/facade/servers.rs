//! PostgreSQL, MySQL, ZooKeeper and etcd by URL, with the features and without them.

#[cfg(not(all(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zk")))]
#[tokio::test]
async fn without_its_feature_every_scheme_names_it() {
    use dlock::{ErrorKind, error::ConfigIssue};

    let schemes: &[(&str, &str, bool)] = &[
        ("postgres", "postgres", cfg!(feature = "postgres")),
        ("postgresql", "postgres", cfg!(feature = "postgres")),
        ("mysql", "mysql", cfg!(feature = "mysql")),
        ("mariadb", "mysql", cfg!(feature = "mysql")),
        ("zk", "zk", cfg!(feature = "zk")),
        ("zks", "zk", cfg!(feature = "zk")),
        ("etcd", "etcd", cfg!(feature = "etcd")),
        ("etcds", "etcd", cfg!(feature = "etcd")),
    ];
    for (scheme, feature, is_there) in schemes {
        if *is_there {
            continue;
        }
        let error = dlock::connect(&format!("{scheme}://u:hunter2@h/d")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::MissingFeature), "{error}");
        assert!(error.to_string().contains(&format!("feature \"{feature}\"")), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[cfg(all(feature = "etcd", feature = "mysql", feature = "postgres", feature = "zk"))]
mod with_the_features {
    use dlock::{ErrorKind, error::ConfigIssue};

    #[tokio::test]
    async fn each_mistake_has_its_own_error_before_anything_is_opened() {
        use ConfigIssue as Is;
        for (url, issue, remedy) in [
            ("postgres://db.example.org/locks", Is::OptionValue, "sslmode=disable"),
            ("postgres://db.example.org/locks?sslmode=prefer", Is::OptionValue, "sslmode"),
            ("postgres://localhost/locks?timeout=3", Is::UnknownOption, "sslmode"),
            ("postgres://localhost/locks?dlock.root=/a", Is::UnknownOption, "dlock.pooler"),
            ("postgres://localhost/locks?dlock.durability=none", Is::OptionValue, "relaxed"),
            ("postgres://localhost/locks?dlock.connections=0", Is::OptionValue, "1 to 16"),
            ("postgres://localhost/locks?dlock.plain=yes", Is::OptionValue, "row or version"),
            ("mysql://u@db.example.org/locks", Is::OptionValue, "ssl-mode=DISABLED"),
            ("mysql://u@localhost/", Is::Url, "database"),
            ("mysql://localhost/d", Is::Url, "user"),
            ("mysql://u@localhost/locks?timeout=3", Is::UnknownOption, "ssl-mode"),
            ("mysql://u@localhost/locks?dlock.pooler=true", Is::UnknownOption, "dlock.retention"),
            ("mariadb://u@localhost/locks?dlock.durability=relaxed", Is::OptionValue, "innodb"),
            ("zk://", Is::Url, "zk://user"),
            ("zk://host?timeout=3", Is::UnknownOption, "dlock.session_timeout"),
            ("zk://host?dlock.durability=1", Is::UnknownOption, "dlock.root"),
            ("zk://host?dlock.session_timeout=1ms", Is::OptionValue, "1s to 1h"),
            ("zk://host?dlock.acl=creator", Is::OptionValue, "user and password"),
            ("etcd://", Is::Url, "host"),
            ("etcd://host?timeout=3", Is::UnknownOption, "dlock.session_timeout"),
            ("etcd://host?dlock.durability=1", Is::UnknownOption, "dlock.root"),
            ("etcd://host?dlock.session_timeout=1s", Is::OptionValue, "2s to 5m"),
            ("etcd://u@host", Is::Url, "user:password"),
        ] {
            let error = dlock::connect(url).await.expect_err("a wrong URL was taken");
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn an_unreachable_server_is_reported_with_its_address() {
        for url in [
            "postgres://u:hunter2@127.0.0.1:1/d?dlock.response_timeout=100ms",
            "mysql://u:hunter2@127.0.0.1:1/d?dlock.response_timeout=100ms",
            "zk://u:hunter2@127.0.0.1:1",
            "etcd://u:hunter2@127.0.0.1:1",
        ] {
            let error = dlock::connect(url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let text = format!("{error} {error:?}");
            assert!(text.contains("127.0.0.1:1") && !text.contains("hunter2"), "{text}");
        }
    }
}
