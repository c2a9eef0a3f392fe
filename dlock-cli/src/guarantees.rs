//! `dlock guarantees`: the guarantees of a store.

use clap::Args;
use dlock::{
    Locks,
    guarantees::{Exclusion, Guarantees},
};
use serde::Serialize;

use crate::{
    failure::Failure,
    output,
    store::{self, Store},
};

/// Show what a store guarantees.
///
/// The guarantees are those of the store as it is connected and set up: a setting of the server or
/// of the URL can change them. GUARANTEES.md lists the guarantees of each kind of store.
///
/// With --json it prints one object: store, and guarantees with exclusion, fencing, orphan_release,
/// fairness, wake_up, scope, permits and notes, each with value and text.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dlock guarantees --url redis://localhost")]
pub(crate) struct GuaranteesOf {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct Promises<'a> {
    store: &'a str,
    guarantees: View,
}

/// The JSON form of all guarantees.
#[derive(Serialize)]
pub(crate) struct View {
    exclusion: Level,
    fencing: Level,
    orphan_release: Level,
    fairness: Level,
    wake_up: Level,
    scope: Level,
    permits: Level,
    notes: Level,
}

#[derive(Serialize)]
struct Level {
    value: String,
    text: String,
}

pub(crate) async fn run(args: GuaranteesOf, store: &Store) -> Result<u8, Failure> {
    let locks = store.connect().await?;
    let printed = print(&args, &locks);
    store::close(&locks).await;
    printed.map(|()| 0)
}

fn print(args: &GuaranteesOf, locks: &Locks) -> Result<(), Failure> {
    let (store, guarantees) = (locks.backend().store(), locks.guarantees());
    if args.json {
        return output::print_json(&Promises { store, guarantees: View::new(&guarantees) });
    }
    output::print(&format!("{store}\n{}", text(&guarantees)))
}

/// Returns a line for each guarantee.
pub(crate) fn text(guarantees: &Guarantees) -> String {
    let rows = guarantees.rows().map(|(what, _, text)| vec![what.to_owned(), text]);
    output::table(&rows)
}

impl View {
    pub(crate) fn new(guarantees: &Guarantees) -> Self {
        let Guarantees {
            exclusion,
            fencing,
            orphan_release,
            fairness,
            wake_up,
            scope,
            permits,
            notes,
            ..
        } = *guarantees;
        Self {
            exclusion: match exclusion {
                Exclusion::Nothing => {
                    Level { value: "until_restart".into(), ..Level::new(exclusion) }
                }
                exclusion => Level::new(exclusion),
            },
            fencing: Level::new(fencing),
            orphan_release: Level::new(orphan_release),
            fairness: Level::new(fairness),
            wake_up: Level::new(wake_up),
            scope: Level::new(scope),
            permits: Level::new(permits),
            notes: Level::new(notes),
        }
    }
}

impl Level {
    /// Returns the name of the variant in words, such as `lease_end`, and its text.
    fn new(level: impl std::fmt::Debug + std::fmt::Display) -> Self {
        let mut value = String::new();
        for c in format!("{level:?}").chars() {
            if c.is_uppercase() && !value.is_empty() {
                value.push('_');
            }
            value.extend(c.to_lowercase());
        }
        Self { value, text: level.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_value_that_stays_and_a_text() {
        let json = serde_json::to_value(View::new(&Guarantees::WEAKEST)).unwrap();
        assert_eq!(json["orphan_release"]["value"], "lease_end");
        assert_eq!(json["exclusion"]["value"], "until_restart");
        assert_eq!(json["exclusion"]["text"], "until the store restarts");
        assert_eq!(json.as_object().unwrap().len(), Guarantees::WEAKEST.rows().len());
    }
}
