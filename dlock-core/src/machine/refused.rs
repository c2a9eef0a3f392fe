//! The errors for operations that the rules refuse.

use crate::{ConfigIssue, Error, Mode};

/// The error for [`Outcome::Conflict`](super::Outcome::Conflict): `asked` uses a name for another
/// kind of lock than the current claims do.
pub fn conflict(asked: Mode, capacity: u32) -> Error {
    let kind = |capacity| match Mode::from_weight(1, capacity) {
        Mode::Permits { of, .. } => format!("a semaphore of {of} permits"),
        _ => "a mutex or read-write lock".to_owned(),
    };
    in_use_as(&format!("{}, and this request is for {}", kind(capacity), kind(asked.capacity())))
}

/// The error for a name that is in use as another kind of lock, or as a semaphore of another size.
/// `what` names that lock.
pub fn in_use_as(what: &str) -> Error {
    Error::config(
        ConfigIssue::Capacity,
        format!(
            "others hold or wait for this name as {what}: use a name for one kind of lock only; a \
             semaphore can get another number of permits once its last holder and waiter have ended"
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
