//! Lock names.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::{ConfigIssue, Error};

/// The name of a lock: any UTF-8 of 1 to 512 bytes without control characters, compared byte for
/// byte. `Job`, `job` and `job ` are three locks, and so are two Unicode forms of one word.
///
/// Every backend maps names one to one to keys of its store, so two names never share a lock.
/// Cloning is cheap.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        // Most comparisons are between a name and its own clone.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a text and creates the name.
    ///
    /// # Errors
    /// `Config(Name)` if the text is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or contains
    /// a control character.
    pub fn new(name: &str) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::config(ConfigIssue::Name, why));
        if name.is_empty() {
            return refuse("a lock name is empty: give it 1 to 512 bytes".into());
        }
        if name.len() > Self::MAX_BYTES {
            return refuse(format!(
                "a lock name has {} bytes: use at most {}, for example a hash of the long part",
                name.len(),
                Self::MAX_BYTES
            ));
        }
        if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return refuse(format!(
                "a lock name has the control character {c:?} at byte {at}: leave it out or encode it"
            ));
        }
        Ok(Self(name.into()))
    }

    /// Returns whether a name can begin with this text: it is empty or a valid name.
    pub fn can_begin_with(prefix: &str) -> bool {
        prefix.is_empty() || Self::new(prefix).is_ok()
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(&name)
    }
}

impl TryFrom<&String> for LockName {
    type Error = Error;

    fn try_from(name: &String) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl TryFrom<&LockName> for LockName {
    type Error = Error;

    fn try_from(name: &LockName) -> Result<Self, Error> {
        Ok(name.clone())
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// A value that names a lock: a [`LockName`], or a `&str` or `String` that is checked.
pub trait IntoName {
    /// Returns the name.
    ///
    /// # Errors
    /// `Config(Name)` if the text is not a valid name.
    fn into_name(self) -> Result<LockName, Error>;
}

impl<N> IntoName for N
where
    N: TryInto<LockName>,
    Error: From<N::Error>,
{
    fn into_name(self) -> Result<LockName, Error> {
        Ok(self.try_into()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn good_names() {
        for name in ["a", "/", "..", "{a}", "}{", "🔒", "caf\u{e9}", "cafe\u{301}", "'\"%; --", " "]
        {
            assert_eq!(LockName::new(name).unwrap().as_str(), name);
        }
        assert!(LockName::new(&"x".repeat(512)).is_ok());
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for (name, says) in [
            (String::new(), "empty"),
            ("x".repeat(513), "513 bytes"),
            ("a\0b".into(), "control character"),
            ("a\nb".into(), "at byte 1"),
            ("\u{85}".into(), "control character"),
        ] {
            let error = LockName::new(&name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Name));
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
