//! The error type of all crates: what failed, and whether the store may have applied the request.

use std::{any::Any, borrow::Cow, error::Error as StdError, fmt, sync::Arc};

use parking_lot::Mutex;

use crate::LockName;

/// The kind of a failure. Match on it to decide; print the [`Error`] to explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The program or its configuration requested something invalid; nothing was sent, or the store
    /// was found unfit at startup. A retry does not help.
    Config(ConfigIssue),
    /// The lock was held and is lost. Work under it must stop.
    Lost,
    /// The claim holds nothing: it was never granted, or it was released.
    NotHeld,
    /// The wait ended before the lock was granted. The claim has been cancelled, or is cancelled in
    /// the background.
    Timeout,
    /// The store is unreachable or refuses to work at present. A retry may help.
    Unavailable,
    /// This backend does not support the operation, and has no weaker substitute for it.
    Unsupported,
    /// The store contains or returned something that this version can't read.
    Protocol,
}

/// The part of the configuration that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigIssue {
    /// The lock name is empty, too long, or contains control characters.
    Name,
    /// The note is empty, too long, or contains control characters; or these locks have another
    /// note.
    Note,
    /// The lease is outside the accepted range.
    Lease,
    /// The renewal policy is outside the accepted range.
    Renewal,
    /// The number of permits is zero or larger than the semaphore's.
    Permits,
    /// Another live claim uses the same name with another capacity (a semaphore of another size,
    /// or a mutex and a semaphore of one name).
    Capacity,
    /// The fencing token is zero or not below 2^63.
    Token,
    /// A multi-lock without names.
    Empty,
    /// The URL is not of the form `scheme:address?option=value`.
    Url,
    /// No backend is registered for the URL's scheme.
    UnknownScheme,
    /// The backend for the URL's scheme exists but is not compiled in.
    MissingFeature,
    /// The URL has an unknown `dlock.*` option.
    UnknownOption,
    /// The URL has the same option twice.
    RepeatedOption,
    /// The value of an option can't be read.
    OptionValue,
    /// The backend does not give a guarantee that the application requires.
    Guarantee,
    /// The thread has no tokio runtime, or the runtime of the locks has ended.
    Runtime,
    /// `shutdown` was called on these locks.
    ShutDown,
    /// The store can't be opened: for example a path that can't be written, or missing permissions.
    Access,
    /// The database belongs to another program, or the file is not a database.
    ForeignStore,
    /// The tables are missing, and the option that creates them is not set.
    SchemaMissing,
    /// A newer version created the tables.
    SchemaNewer,
}

/// Whether a failed operation may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Certainty {
    /// The store may have applied the request. Retry with the same claim, or release it.
    Unknown,
    /// The store has not applied the request and will not.
    NotApplied,
}

/// An error of any dlock operation.
///
/// Its text names the operation, the lock, the backend, the failure and the remedy, and never
/// contains a password. The driver's own error is the [`source`](StdError::source).
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    certainty: Certainty,
    message: Cow<'static, str>,
    operation: Option<&'static str>,
    store: Option<Arc<str>>,
    lock: Option<LockName>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    output: Option<Arc<Output>>,
}

/// The output of work that outlived its lock, until it is taken.
type Output = Mutex<Option<Box<dyn Any + Send>>>;

impl Error {
    /// Creates an error of this kind. The message is lower case, without a full stop, and names the
    /// remedy.
    ///
    /// [`Certainty`] starts as `Unknown` for `Unavailable` and `Protocol`, and as `NotApplied` for
    /// other kinds; [`with_certainty`](Self::with_certainty) changes it.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let certainty = match kind {
            ErrorKind::Unavailable | ErrorKind::Protocol => Certainty::Unknown,
            _ => Certainty::NotApplied,
        };
        Self(Box::new(Inner {
            kind,
            certainty,
            message: message.into(),
            operation: None,
            store: None,
            lock: None,
            source: None,
            output: None,
        }))
    }

    /// Creates a configuration error; nothing was applied.
    pub fn config(issue: ConfigIssue, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config(issue), message)
    }

    /// Creates the error of a lock that was held and is lost.
    pub fn lost(name: &LockName, why: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Lost,
            format!("the lock was lost ({why}): stop the work it protects and take it again"),
        )
        .with_lock(name)
    }

    /// Creates the error of work that has ended, although the lock may not have been held until
    /// then.
    pub(crate) fn outlived(name: &LockName, why: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Lost,
            format!(
                "the work has ended, but the lock was lost meanwhile ({why}): check what was \
                 written, because another holder may have worked at the same time; the outcome is \
                 in this error"
            ),
        )
        .with_lock(name)
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the operation may have taken effect despite the error.
    pub fn certainty(&self) -> Certainty {
        self.0.certainty
    }

    /// The lock of the operation.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// The contract verb or API call that failed.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The store of the operation, without secrets.
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// Whether a retry may succeed without a change to the program or the configuration.
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::Timeout)
    }

    /// Sets whether the operation may have taken effect.
    #[must_use]
    pub fn with_certainty(mut self, certainty: Certainty) -> Self {
        self.0.certainty = certainty;
        self
    }

    /// Sets the lock, unless it is already set.
    #[must_use]
    pub fn with_lock(mut self, name: &LockName) -> Self {
        self.0.lock.get_or_insert_with(|| name.clone());
        self
    }

    /// Removes the lock from an error that does not concern it alone.
    #[must_use]
    pub(crate) fn without_lock(mut self) -> Self {
        self.0.lock = None;
        self
    }

    /// Sets the store, unless it is already set. Never pass a secret.
    #[must_use]
    pub fn with_store(mut self, store: &str) -> Self {
        self.0.store.get_or_insert_with(|| store.into());
        self
    }

    /// Sets the operation, unless it is already set.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Sets the operation, the lock and the store, each unless it is already set.
    #[must_use]
    pub fn at(self, operation: &'static str, name: &LockName, store: &str) -> Self {
        self.during(operation).with_lock(name).with_store(store)
    }

    /// Sets the driver's error as the source.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Stores the output of work that has ended, for [`take_output`](Self::take_output).
    #[must_use]
    pub fn with_output<T: Send + 'static>(mut self, output: T) -> Self {
        self.0.output = Some(Arc::new(Mutex::new(Some(Box::new(output)))));
        self
    }

    /// Whether an output can be taken: the work has ended and was not dropped before its end.
    pub fn has_output(&self) -> bool {
        self.0.output.as_ref().is_some_and(|output| output.lock().is_some())
    }

    /// Takes the output of work that outlived its lock, once for this error and its clones: see
    /// [`Guard::run`](crate::Guard::run). Returns `None` if there is no output or if it has another
    /// type.
    ///
    /// The error owns the output and can be sent to another thread, so the output of such work is
    /// `Send + 'static`. For an output that borrows, call [`Guard::check`](crate::Guard::check)
    /// after the work, and see whether [`Guard::release`](crate::Guard::release) returns
    /// [`Released`](crate::Released::Released).
    ///
    /// ```
    /// # use std::{thread, time::Duration};
    /// # use dlock_core::{ErrorKind, LockExt, LockOptions, Locks, Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
    /// let options = LockOptions::new().with_lease(Duration::from_millis(400));
    /// let locks = Locks::new(Memory::new())?.with_options(options)?;
    /// let work = |_| async {
    ///     // It blocks the thread on which the lease would be renewed.
    ///     thread::sleep(Duration::from_millis(500));
    ///     42
    /// };
    /// let error = locks.mutex("report")?.with(work).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Lost);
    /// assert_eq!(error.take_output::<i32>(), Some(42));
    /// # Ok(()) }
    /// ```
    pub fn take_output<T: 'static>(&self) -> Option<T> {
        let mut output = self.0.output.as_ref()?.lock();
        match output.take()?.downcast() {
            Ok(taken) => Some(*taken),
            Err(other) => {
                *output = Some(other);
                None
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(operation) = inner.operation {
            write!(f, "{operation}")?;
        }
        if let Some(lock) = &inner.lock {
            write!(f, "{}lock {lock:?}", if inner.operation.is_some() { " of " } else { "" })?;
        }
        if let Some(store) = &inner.store {
            let started = inner.operation.is_some() || inner.lock.is_some();
            write!(f, "{}{store}", if started { " on " } else { "" })?;
        }
        if inner.operation.is_some() || inner.lock.is_some() || inner.store.is_some() {
            f.write_str(": ")?;
        }
        f.write_str(&inner.message)
    }
}

impl fmt::Debug for Error {
    /// For people, since `main` and `unwrap` print this: the message, the kind, and the causes that
    /// the message does not contain. `{:#?}` shows the fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            let mut text = self.to_string();
            write!(f, "{text} [{:?}, {:?}]", self.0.kind, self.0.certainty)?;
            let mut source = StdError::source(self);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    write!(f, "; caused by: {cause_text}")?;
                    text.push_str(&cause_text);
                }
                source = cause.source();
            }
            return Ok(());
        }
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("certainty", &self.0.certainty)
            .field("message", &format_args!("{self}"))
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod output {
    use super::*;

    #[test]
    fn debug_output_names_each_cause_once() {
        let timeout = Error::new(ErrorKind::Timeout, "no answer");
        let error = Error::new(ErrorKind::Unavailable, "the store is away").with_source(timeout);
        assert_eq!(
            format!("{error:?}"),
            "the store is away [Unavailable, Unknown]; caused by: no answer"
        );
        let shown = Error::new(ErrorKind::Timeout, format!("gave up: {error}")).with_source(error);
        assert_eq!(
            format!("{shown:?}"),
            "gave up: the store is away [Timeout, NotApplied]; caused by: no answer"
        );
        assert!(format!("{shown:#?}").contains("certainty"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_operation_lock_store_and_remedy() {
        let name = LockName::new("a/b").unwrap();
        let error = Error::new(ErrorKind::Unavailable, "busy; try again")
            .during("acquire")
            .with_lock(&name)
            .with_store("sqlite:/tmp/x.db");
        assert_eq!(
            error.to_string(),
            r#"acquire of lock "a/b" on sqlite:/tmp/x.db: busy; try again"#
        );
        assert_eq!(error.certainty(), Certainty::Unknown);
    }

    #[test]
    fn an_output_is_taken_once_and_by_its_type() {
        let error = Error::new(ErrorKind::Lost, "gone").with_output("done".to_owned());
        let clone = error.clone();
        assert!(error.has_output());
        assert_eq!(error.take_output::<u32>(), None);
        assert_eq!(clone.take_output::<String>().as_deref(), Some("done"));
        assert_eq!(error.take_output::<String>(), None);
        assert!(!error.has_output());
    }

    #[test]
    fn context_given_first_wins() {
        let (a, b) = (LockName::new("a").unwrap(), LockName::new("b").unwrap());
        let error = Error::new(ErrorKind::Lost, "gone").with_lock(&a).with_lock(&b);
        assert_eq!(error.lock(), Some(&a));
    }
}
