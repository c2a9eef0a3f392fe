//! The table of rules in the guide names cases that exist.

use std::{collections::BTreeSet, fs, path::Path};

use dlock_testkit::{ALL, Case};
use libtest_mimic::Failed;

/// The chapter and the heading of the table.
const CHAPTER: &str = "../docs/src/own-backend.md";
const HEADING: &str = "### Rules and their cases";

pub(crate) fn every_rule_names_cases_that_exist() -> Result<(), Failed> {
    let chapter = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CHAPTER))?;
    let (_, table) = chapter.split_once(HEADING).ok_or("the table is gone")?;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let known: BTreeSet<String> = ALL.iter().map(Case::name).collect();
    for row in &rows {
        let (_, cases) = row.trim_end_matches(" |").rsplit_once(" | ").ok_or("two columns")?;
        let named: Vec<&str> = cases.split('`').filter(|name| name.contains("::")).collect();
        if named.is_empty() {
            return Err(format!("no case for: {row}").into());
        }
        if let Some(missing) = named.iter().find(|name| !known.contains(**name)) {
            return Err(format!("there is no case {missing}").into());
        }
    }
    if rows.len() < 20 {
        return Err(format!("{} rules are in the table", rows.len()).into());
    }
    Ok(())
}
