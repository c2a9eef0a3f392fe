//! The findings about a file.

use dlock_core::{Finding, Level};

use crate::support::Store;

#[track_caller]
fn amiss(findings: &[Finding]) -> Vec<&Finding> {
    assert!(findings.len() >= 5, "{findings:?}");
    let amiss: Vec<_> = findings.iter().filter(|finding| finding.level > Level::Fine).collect();
    assert!(amiss.iter().all(|finding| finding.remedy.is_some()), "{amiss:?}");
    amiss
}

#[tokio::test]
async fn a_new_file_is_fine() {
    let store = Store::new();
    let findings = store.open().await.examine().await.unwrap();
    assert!(amiss(&findings).is_empty(), "{findings:?}");
}

#[tokio::test]
async fn missing_tables_are_wrong() {
    let store = Store::new();
    let client = store.open().await;
    sqlx::raw_sql("DROP TABLE dlock_lock").execute(&mut store.raw().await).await.unwrap();
    let findings = client.examine().await.unwrap();
    let [finding] = amiss(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!((finding.about, finding.level), ("tables", Level::Wrong));
    assert!(finding.remedy.as_ref().is_some_and(|text| text.contains("create_schema")));
}

#[tokio::test]
async fn tables_of_a_later_version_are_wrong() {
    let store = Store::new();
    let client = store.open().await;
    let later = "UPDATE dlock_schema SET version = 99";
    sqlx::raw_sql(later).execute(&mut store.raw().await).await.unwrap();
    let findings = client.examine().await.unwrap();
    let [finding] = amiss(&findings)[..] else { panic!("{findings:?}") };
    assert!(finding.found.contains("99"), "{finding:?}");
}
