//! The errors for operations that the rules refuse.

use crate::{ConfigIssue, Error, Mode};

/// The error for [`Outcome::Conflict`](super::Outcome::Conflict): `asked` uses a name for another
/// kind of lock than the current claims do.
pub fn conflict(asked: Mode, capacity: u32) -> Error {
    let kind = |capacity| match Mode::from_weight(1, capacity) {
        Mode::Permits { of, .. } => format!("a semaphore of {of} permits"),
        _ => "a mutex or read-write lock".to_owned(),
    };
    Error::config(
        ConfigIssue::Capacity,
        format!(
            "others hold or wait for this name as {}, and this request is for {}: use a name for \
             one kind of lock only, with one number of permits",
            kind(capacity),
            kind(asked.capacity())
        ),
    )
}

/// The error for [`Outcome::Spent`](super::Outcome::Spent): tokens only grow, and the last token
/// has reached the largest possible one, or almost.
pub fn spent() -> Error {
    Error::config(
        ConfigIssue::Token,
        "no fencing token is left for this name: the last one is close to 2^63 - 1, because tokens \
         were raised or another program wrote it; use another name, or, if no resource has seen \
         such a token, delete the record of this name from the store",
    )
}
