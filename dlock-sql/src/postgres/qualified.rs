//! Each statement names the schema of everything that it uses, since another user may have made
//! operators, functions, types or relations in a schema of the search path.

use std::{fs, path::Path};

use super::{plain, queries, statement};
use crate::server::Texts;

#[path = "../../tests/postgres/planted/qualified.rs"]
mod names;

#[test]
fn no_statement_relies_on_the_search_path() {
    let mut all = vec![
        &**queries::APPLY_ONE_WITHOUT_SYNC,
        &**queries::GREETING,
        queries::GREETING_OF_POOLER,
        queries::POOLED,
        queries::WHICH,
        queries::CREATES_IN,
        queries::CREATORS,
        queries::TRUST,
        queries::ADVISORY_FREE,
        queries::NOW,
        queries::PROCESS,
        statement::RESET_ROLE,
        statement::RESET_PATH,
        statement::LOCAL_PATH,
        statement::OWN_PATH,
    ];
    all.extend(queries::STATEMENTS);
    all.extend(plain::STATEMENTS.all());
    let mut texts = texts();
    for sql in all {
        assert_eq!(names::looked_up(texts.of(sql).as_str()), Vec::<String>::new(), "{sql}");
    }
}

#[test]
fn no_file_of_statements_relies_on_the_search_path() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres");
    let mut files = 0;
    for folder in [source.clone(), source.join("advisory")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "sql") {
                let sql: &'static str = Box::leak(fs::read_to_string(&path).unwrap().into());
                let found = names::looked_up(texts().of(sql).as_str());
                assert_eq!(found, Vec::<String>::new(), "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files >= 20, "{files}");
}

fn texts() -> Texts {
    let tables = ["dlock_lock", "dlock_schema", "dlock_plain", "dlock_advisory"];
    Texts::new(tables.map(|table| (table, "s")))
}
