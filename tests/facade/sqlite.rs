//! `connect` to SQLite, with the feature and without it.

use dlock::{ErrorKind, backend::registry, connect, error::ConfigIssue};

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn without_the_feature_the_error_names_it() {
    let error = connect("sqlite:locks.db?dlock.create_schema=true").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::MissingFeature));
    assert!(error.to_string().contains("feature \"sqlite\""), "{error}");
    assert_eq!(registry().schemes(), ["memory"]);
}

#[cfg(feature = "sqlite")]
mod with_the_feature {
    use dlock::guarantees::{Guarantees, Scope};
    use tempfile::TempDir;

    use super::*;

    fn url(dir: &TempDir, options: &str) -> String {
        format!("sqlite:{}{options}", dir.path().join("locks.db").display())
    }

    #[tokio::test]
    async fn two_connections_exclude_each_other_and_tokens_grow() {
        let dir = TempDir::new().unwrap();
        let url = url(&dir, "?dlock.create_schema=true");
        let (one, two) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
        let first = one.mutex("a").unwrap().lock().await.unwrap();
        assert!(two.mutex("a").unwrap().try_lock().await.unwrap().is_none());
        let token = first.token();
        first.release().await.unwrap();
        let second = two.mutex("a").unwrap().lock().await.unwrap();
        assert!(second.token() > token);
        two.require(&Guarantees::WEAKEST.with_scope(Scope::Machine)).unwrap();
    }

    #[tokio::test]
    async fn the_schema_is_made_on_request_only() {
        let dir = TempDir::new().unwrap();
        let error = connect(&url(&dir, "")).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
        assert!(error.to_string().contains("dlock.create_schema"), "{error}");
        connect(&url(&dir, "?dlock.create_schema=true")).await.unwrap();
        connect(&url(&dir, "")).await.unwrap();
    }

    #[tokio::test]
    async fn a_bad_option_is_reported_before_the_file_is_made() {
        for (options, issue) in [
            ("?dlock.create_schema=perhaps", ConfigIssue::OptionValue),
            ("?dlock.create_schema=true&dlock.nope=1", ConfigIssue::UnknownOption),
            ("?dlock.create_schema=true&dlock.lease=1ns", ConfigIssue::Lease),
        ] {
            let dir = TempDir::new().unwrap();
            let error = connect(&url(&dir, options)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{error}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{options}");
        }
    }

    #[test]
    fn the_scheme_is_known() {
        let schemes = registry().schemes();
        assert!(schemes.contains(&"memory") && schemes.contains(&"sqlite"), "{schemes:?}");
    }
}
