//! Whether a store goes on above the tokens of another, for a change of the store.

use std::time::Duration;

use crate::{ClaimId, Error, Fencing, FencingToken, Finding, LockName, Locks, TokenOffset};

/// What a finding is about.
const ABOUT: &str = "seen token";

/// How long to wait for a lock that nobody else can know.
const WAIT: Duration = Duration::from_secs(10);

/// So many tokens have to be left above one that is seen.
const ROOM: u64 = 1 << 40;

impl Locks {
    /// Whether the tokens of these locks, with their offset and floor, go on above one that a
    /// resource has seen, and which `dlock.token_offset` to set if they do not: for a change from
    /// one store to another.
    ///
    /// It takes and releases a lock of a random name below `dlock-doctor/`, since a store says only
    /// with a grant which token is next. Nothing of it stays for longer than the store keeps the
    /// last tokens of names.
    ///
    /// ```
    /// # use dlock_core::{FencingToken, Level, Locks, Memory, TokenOffset};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
    /// let seen = FencingToken::new(1 << 60)?;
    /// let finding = Locks::new(Memory::new())?.examine_token(seen).await?;
    /// assert_eq!(finding.level, Level::Wrong);
    ///
    /// let shifted = TokenOffset::new(Memory::new(), seen.get())?;
    /// let finding = Locks::new(shifted)?.examine_token(seen).await?;
    /// assert_eq!(finding.level, Level::Fine);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for any lock: `Unavailable`, and `Config(Token)` where the offset is too large for the
    /// store's tokens.
    ///
    /// # Cancel safety
    /// The lock is released in the background.
    pub async fn examine_token(&self, seen: FencingToken) -> Result<Finding, Error> {
        let name = LockName::new(&format!("dlock-doctor/{}", ClaimId::random()))?;
        if self.guarantees().fencing == Fencing::None {
            return Ok(meaningless());
        }
        let guard = self.without_handoff().mutex(name)?.lock_timeout(WAIT).await?;
        let next = guard.token();
        guard.release().await?;
        Ok(compare(seen, next))
    }
}

fn meaningless() -> Finding {
    Finding::wrong(
        ABOUT,
        "this store has no fencing tokens that mean anything, so they do not go on above any",
        "use dlock's own tables or keys, without dlock.plain",
    )
}

/// What there is to say of a store whose next token is `next`.
fn compare(seen: FencingToken, next: FencingToken) -> Finding {
    if next > seen {
        return Finding::fine(ABOUT, format!("tokens go on above {seen}: the next was {next}"));
    }
    let found =
        format!("tokens do not go on above {seen}: the next was {next}, and would be refused");
    let (seen, next) = (seen.get(), next.get());
    let left = FencingToken::MAX.get() - seen;
    let more = seen - next + 1;
    let remedy = if seen <= TokenOffset::MAX && next <= left {
        format!(
            "write dlock.token_offset={seen} into the URL of every program that uses this store, \
             before any of them starts, and keep it"
        )
    } else if left >= ROOM && more <= TokenOffset::MAX {
        format!(
            "make dlock.token_offset larger by {more} in the URL of every program that uses this \
             store, before any of them starts, and keep it"
        )
    } else {
        "no offset leaves enough tokens above it: stop all programs and have the resource forget \
         the tokens that it has seen"
            .to_owned()
    };
    Finding::wrong(ABOUT, found, remedy)
}

#[cfg(test)]
mod outside {
    use super::*;
    use crate::Level;

    #[test]
    fn the_offset_that_is_told_is_one_that_helps() {
        let token = |value| FencingToken::new(value).unwrap();
        let max = FencingToken::MAX.get();
        for (seen, next, says) in [
            (7, 8, None),
            (max - 1, max, None),
            (8, 8, Some("dlock.token_offset=8 ")),
            (1 << 62, 1, Some("dlock.token_offset=4611686018427387904 ")),
            ((1 << 62) + 7, 8, Some("larger by 4611686018427387904 ")),
            ((1 << 62) + 8, 8, Some("no offset")),
            (1 << 62, 1 << 62, Some("larger by 1 ")),
            (max, 1, Some("no offset")),
            (max, max, Some("no offset")),
        ] {
            let finding = compare(token(seen), token(next));
            match says {
                None => assert_eq!(finding.level, Level::Fine, "{finding:?}"),
                Some(says) => {
                    assert_eq!(finding.level, Level::Wrong, "{finding:?}");
                    assert!(finding.remedy.as_deref().unwrap().contains(says), "{finding:?}");
                }
            }
        }
    }
}
