//! Selects the property that an input of a fuzz target is checked with.

/// Checks the property that the first byte selects, with the bytes after it.
pub fn check(properties: &[fn(&[u8])], data: &[u8]) {
    if let Some((first, rest)) = data.split_first() {
        properties[usize::from(*first) % properties.len()](rest);
    }
}
