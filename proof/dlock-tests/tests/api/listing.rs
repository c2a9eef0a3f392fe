//! The text of a golden file: an item of the API a line, without lines that repeat others and without
//! paths that users can't name.

/// Auto traits and traits of the compiler that this project does not promise. `Send` and `Sync` stay.
const UNPROMISED: [&str; 6] = [
    "core::marker::Freeze for ",
    "core::marker::StructuralPartialEq for ",
    "core::marker::Unpin for ",
    "core::marker::UnsafeUnpin for ",
    "core::panic::unwind_safe::RefUnwindSafe for ",
    "core::panic::unwind_safe::UnwindSafe for ",
];

/// Methods that the line of their trait implies.
const IMPLIED: [&str; 6] = [
    "::clone(&self",
    "::cmp(&self",
    "::eq(&self",
    "::fmt(&self",
    "::hash<__H",
    "::partial_cmp(&self",
];

/// Returns the lines of a crate's API that its golden file has.
pub(crate) fn listing(own: &str, api: &str) -> String {
    let (mut text, mut of_core) = (String::new(), false);
    for line in api.lines() {
        if line.starts_with("impl") {
            of_core = line.starts_with("impl core::") || line.contains("> core::");
        }
        let implied = of_core && IMPLIED.iter().any(|method| line.contains(method));
        let unpromised = line.starts_with("impl") && UNPROMISED.iter().any(|of| line.contains(of));
        if !implied && !unpromised {
            text += &without_private_modules(own, line);
            text.push('\n');
        }
    }
    text
}

/// Removes the modules from the paths of other crates of this project: rustdoc names a type of
/// another crate after the file that it stands in, which is no API.
fn without_private_modules(own: &str, line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find("dlock") {
        let end = rest[start..]
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            .map_or(rest.len(), |length| start + length);
        text += &rest[..start];
        text += &shortened(own, &rest[start..end]);
        rest = &rest[end..];
    }
    text + rest
}

/// Returns the path `other::module::Name` as `other::Name`.
fn shortened(own: &str, path: &str) -> String {
    let parts: Vec<&str> = path.split("::").collect();
    if parts[0] == own {
        return path.to_string();
    }
    let named = parts.iter().position(|part| part.starts_with(char::is_uppercase));
    match named {
        Some(first) => [&parts[..1], &parts[first..]].concat().join("::"),
        None => path.to_string(),
    }
}
