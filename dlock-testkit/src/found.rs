//! The findings of a store's examination.

use dlock_core::{DynBackend, Finding, Level};

use crate::Stop;

/// Returns the findings that are not fine. Checks that there are at least `least` findings, and
/// that exactly those that are not fine have a remedy.
///
/// # Errors
/// The error of the examination.
///
/// # Panics
/// If there are fewer findings, or a remedy is missing or superfluous.
pub async fn amiss(client: &DynBackend, least: usize) -> Result<Vec<Finding>, Stop> {
    let findings = client.examine().await?;
    assert!(findings.len() >= least, "{findings:?}");
    for finding in &findings {
        assert_eq!(finding.remedy.is_some(), finding.level > Level::Fine, "{finding:?}");
    }
    Ok(findings.into_iter().filter(|finding| finding.level > Level::Fine).collect())
}

/// Checks that there is exactly one finding, with this subject and level, and that its remedy
/// contains this text.
///
/// # Panics
/// If there is not.
#[track_caller]
pub fn only(findings: &[Finding], about: &str, level: Level, remedy: &str) {
    let [finding] = findings else { panic!("{findings:?}") };
    assert_eq!((finding.about, finding.level), (about, level), "{finding:?}");
    assert!(finding.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{finding:?}");
}
