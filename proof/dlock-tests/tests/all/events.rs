//! Events are API: each call site in the library crates is in a golden file, and the list in
//! `dlock_core::observe` agrees with the call sites.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use dlock_tests::{golden, root, rust_files};

/// The levels whose events are always API, listed or not.
const LOUD: [&str; 3] = ["error", "warn", "info"];

/// The text of an event whose message its caller passes.
const PASSED: &str = "{warning}";

/// An event, as a call site emits it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    level: String,
    message: String,
    fields: BTreeSet<String>,
}

/// A row of the list.
#[derive(Debug)]
struct Row {
    /// The beginnings of messages, with the whole message unless it belongs to a single store.
    messages: Vec<String>,
    levels: Vec<String>,
    fields: BTreeSet<String>,
}

/// The sources of the library crates.
fn sources() -> Vec<String> {
    let crates = ["core", "etcd", "redis", "sql", "zk"].map(|name| format!("dlock-{name}/src"));
    let folders = crates.iter().map(String::as_str).chain(["src"]);
    let files = folders.flat_map(|folder| rust_files(&root().join(folder)));
    files.map(|(_, text)| text).collect()
}

/// The arguments of a call, or the parts of a list, up to the bracket that ends them.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    let (mut from, mut end) = (0, text.len());
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' if depth == 0 => {
                end = at;
                break;
            }
            ')' | '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..end].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns a string literal that may continue on the next line.
fn literal(part: &str) -> Option<String> {
    let text = part.strip_prefix('"')?.strip_suffix('"')?;
    let lines = text.split("\\\n").enumerate();
    Some(lines.map(|(at, line)| if at == 0 { line } else { line.trim_start() }).collect())
}

/// Reads the arguments of an event's macro.
fn event(level: &str, arguments: &str) -> Event {
    let (mut message, mut fields) = (String::new(), BTreeSet::new());
    for part in parts(arguments) {
        if part.starts_with("target:") {
            continue;
        }
        if let Some(text) = literal(part) {
            message = text;
        } else if let Some(inner) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            fields.extend(parts(inner).into_iter().map(field));
        } else {
            fields.insert(field(part));
        }
    }
    Event { level: level.to_owned(), message, fields }
}

/// The name of a field: of `%error`, `?wait`, `pause = ?next` or `store`.
fn field(part: &str) -> String {
    let name = part.split_once('=').map_or(part, |(name, _)| name);
    name.trim().trim_start_matches(['%', '?']).to_owned()
}

/// The events that these sources emit.
fn emitted(sources: &[String]) -> Vec<Event> {
    let mut events = Vec::new();
    for source in sources {
        for level in ["trace", "debug", "info", "warn", "error"] {
            let begins = format!("tracing::{level}!(");
            let calls = source.split(&begins).skip(1);
            events.extend(calls.map(|call| event(level, call)));
        }
    }
    events.sort();
    events.dedup();
    events
}

/// The rows of the tables of events in `dlock_core::observe`.
fn listed() -> Vec<Row> {
    let path = root().join("dlock-core/src/observe.rs");
    let text = fs::read_to_string(path).expect("the list of events");
    let text = text.lines().filter_map(|line| line.strip_prefix("//! ")).collect::<Vec<_>>();
    let spans = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let rows = text.iter().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').collect();
        let levels = cells[1].split(',').map(|level| level.trim().to_owned()).collect();
        let fields: Vec<String> = spans(cells[2]);
        Row { messages: spans(cells[0]), levels, fields: fields.into_iter().collect() }
    })
    .collect()
}

/// Whether a row lists this event.
fn lists(row: &Row, event: &Event) -> bool {
    row.levels.contains(&event.level)
        && row.messages.iter().any(|message| event.message.starts_with(message))
}

#[test]
fn the_events_are_those_of_the_golden_file() {
    let rows = listed();
    let events = emitted(&sources());
    let stable = events.iter().filter(|event| {
        LOUD.contains(&event.level.as_str()) || rows.iter().any(|row| lists(row, event))
    });
    let mut text = String::new();
    for Event { level, message, fields } in stable {
        let fields: String = fields.iter().map(|field| format!(" | {field}")).collect();
        text += &format!("{level} | {message}{fields}\n");
    }
    let passed = rows
        .iter()
        .flat_map(|row| &row.messages)
        .filter(|message| !events.iter().any(|event| event.message.starts_with(message.as_str())));
    for message in passed {
        text += &format!("warn | {PASSED} is: {message}\n");
    }
    golden("events.txt", &text);
}

#[test]
fn the_list_of_events_says_what_the_code_emits() {
    let (rows, sources) = (listed(), sources());
    let events = emitted(&sources);
    assert!(rows.len() > 25 && events.len() > 40, "{} rows, {} events", rows.len(), events.len());
    let mut wrong = Vec::new();
    for event in &events {
        let found: Vec<_> = rows.iter().filter(|row| lists(row, event)).collect();
        let missing = found.iter().any(|row| !row.fields.is_subset(&event.fields));
        let unlisted = LOUD.contains(&event.level.as_str()) && found.is_empty();
        if missing || (unlisted && event.message != PASSED) {
            wrong.push(format!("{event:?} is listed as {found:?}"));
        }
    }
    let warning = events.iter().find(|event| event.message == PASSED);
    let literals = sources.concat();
    let mut levels = BTreeMap::<&str, BTreeSet<&str>>::new();
    for row in &rows {
        for message in &row.messages {
            let own: Vec<_> = events.iter().filter(|e| e.message.starts_with(message)).collect();
            levels.entry(message).or_default().extend(own.iter().map(|e| e.level.as_str()));
            let is_passed = literals.contains(&format!("\"{message}\""))
                && warning
                    .is_some_and(|e| row.levels == [e.level.clone()] && row.fields == e.fields);
            if own.is_empty() && !is_passed {
                wrong.push(format!("{message:?} is listed and not emitted so"));
            }
            if !own.is_empty() && row.levels.iter().any(|l| !levels[&**message].contains(&**l)) {
                wrong.push(format!("{message:?} has no event of a level in {:?}", row.levels));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_call_site_is_read_with_its_fields() {
    let source = "tracing::warn!(\n    target: \"dlock\",\n    { lock.name = %name, backend = self.store(), \
                  token = hold.used(), ?wait },\n    \"lock (\\\"a\\\") \\\n     lost\"\n);\n\
                  tracing::debug!(target: \"dlock\", %error, pause = ?next, \"later, again\")";
    let events = emitted(&[source.to_owned()]);
    let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let one = |level: &str, message: &str, names: &[&str]| Event {
        level: level.to_owned(),
        message: message.to_owned(),
        fields: fields(names),
    };
    assert_eq!(
        events,
        [
            one("debug", "later, again", &["error", "pause"]),
            one("warn", "lock (\\\"a\\\") lost", &["backend", "lock.name", "token", "wait"]),
        ]
    );
}

#[test]
fn every_event_has_the_target_dlock() {
    let mut events = 0;
    for text in sources() {
        for level in ["trace", "debug", "info", "warn", "error"] {
            for event in text.split(&format!("tracing::{level}!(")).skip(1) {
                let first = event.trim_start();
                let shown: String = first.chars().take(60).collect();
                assert!(first.starts_with("target: \"dlock\","), "{shown}");
                events += 1;
            }
        }
    }
    assert!(events > 40, "{events} events were found");
}
