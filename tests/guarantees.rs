//! GUARANTEES.md says what the code says.

#![cfg(feature = "sqlite")]

use dlock::Guarantees;

async fn given(url: &str) -> Guarantees {
    dlock::connect(url).await.expect("the store opens").guarantees()
}

#[tokio::test]
async fn the_table_in_guarantees_md_is_true() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite =
        format!("sqlite:{}?dlock.create_schema=true", directory.path().join("x.db").display());
    let backends = [("memory", given("memory:").await), ("SQLite", given(&sqlite).await)];

    let names: Vec<&str> = backends.iter().map(|(name, _)| *name).collect();
    let mut table =
        format!("| guarantee | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for (i, (what, ..)) in backends[0].1.rows().iter().enumerate() {
        let texts: Vec<String> =
            backends.iter().map(|(_, given)| given.rows()[i].2.clone()).collect();
        table.push_str(&format!("| {what} | {} |\n", texts.join(" | ")));
    }
    let written = include_str!("../GUARANTEES.md");
    assert!(written.contains(&table), "GUARANTEES.md should have this table:\n\n{table}");
}
