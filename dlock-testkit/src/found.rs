//! What a store's examination finds.

use dlock_core::{DynBackend, Finding, Level};

use crate::Stop;

/// What is not fine, of at least so many findings; each that is not has a remedy, and no other has.
///
/// # Errors
/// The examination's.
///
/// # Panics
/// When there are fewer, or a remedy is missing or not needed.
pub async fn amiss(client: &DynBackend, least: usize) -> Result<Vec<Finding>, Stop> {
    let findings = client.examine().await?;
    assert!(findings.len() >= least, "{findings:?}");
    for finding in &findings {
        assert_eq!(finding.remedy.is_some(), finding.level > Level::Fine, "{finding:?}");
    }
    Ok(findings.into_iter().filter(|finding| finding.level > Level::Fine).collect())
}

/// There is one finding, about this, of this level, and its remedy names this.
///
/// # Panics
/// When it is not so.
#[track_caller]
pub fn only(findings: &[Finding], about: &str, level: Level, remedy: &str) {
    let [finding] = findings else { panic!("{findings:?}") };
    assert_eq!((finding.about, finding.level), (about, level), "{finding:?}");
    assert!(finding.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{finding:?}");
}
