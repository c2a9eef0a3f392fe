//! Redis by URL, with the feature and without it.

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn without_the_feature_every_scheme_names_it() {
    use dlock::{ErrorKind, error::ConfigIssue};

    for scheme in [
        "redis",
        "rediss",
        "redis+unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
        "redis+quorum",
        "rediss+quorum",
    ] {
        let error = dlock::connect(&format!("{scheme}://user:hunter2@host")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::MissingFeature), "{error}");
        assert!(error.to_string().contains("feature \"redis\""), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[cfg(feature = "redis")]
mod with_the_feature {
    use dlock::{ErrorKind, error::ConfigIssue, redis::RedisConfig};

    #[test]
    fn every_scheme_is_known() {
        let schemes = dlock::backend::registry().schemes();
        for scheme in RedisConfig::SCHEMES {
            assert!(schemes.contains(scheme), "{scheme} is not among {schemes:?}");
        }
    }

    #[tokio::test]
    async fn each_mistake_has_its_own_error_before_anything_is_opened() {
        use ConfigIssue as Is;
        for (url, issue, remedy) in [
            ("redis:host", Is::Url, "redis://"),
            ("redis://a,b", Is::Url, "redis+cluster://"),
            ("redis+sentinel://a", Is::Url, "mymaster"),
            ("redis+quorum://a,b", Is::Url, "three"),
            ("redis://host?timeout=3", Is::UnknownOption, "dlock."),
            ("redis://host?dlock.create_schema=true", Is::UnknownOption, "dlock.durability"),
            ("redis://host?dlock.durability=all", Is::OptionValue, "majority"),
            ("redis://host?dlock.retention=1m", Is::UnknownOption, "dlock.restart_guard"),
        ] {
            let error = dlock::connect(url).await.expect_err("a wrong URL was taken");
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn an_unreachable_server_is_reported_with_its_address() {
        let error = dlock::connect("redis://user:hunter2@127.0.0.1:1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("127.0.0.1:1") && !text.contains("hunter2"), "{text}");
    }
}
