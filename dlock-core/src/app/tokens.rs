//! Tokens that a resource has seen: checks whether a store continues above them, and raises its
//! tokens.

use std::time::Duration;

use crate::{
    ClaimId, ConfigIssue, Error, Fencing, FencingToken, Finding, IntoName, LockName, Locks,
    TokenOffset,
};

/// The subject of the findings.
const ABOUT: &str = "seen token";

/// The longest wait for the lock of a random name, which no other client knows.
const WAIT: Duration = Duration::from_secs(10);

/// The number of tokens that must be left above a seen token.
const ROOM: u64 = 1 << 40;

impl Locks {
    /// Checks whether the tokens of these locks, with their offset, are larger than a token that a
    /// resource has seen. If they are not, the finding names the `dlock.token_offset` to set. Use
    /// it for a change from one store to another.
    ///
    /// It acquires and releases a lock of a random name below `dlock-doctor/`, since a store
    /// reveals its next token only with a grant. The store keeps nothing of that lock for longer
    /// than it keeps the last tokens of names.
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
    /// As for any lock: `Unavailable`, and `Config(Token)` if the offset is too large for the
    /// store's tokens.
    ///
    /// # Cancel safety
    /// The lock is released in the background.
    pub async fn examine_token(&self, seen: FencingToken) -> Result<Finding, Error> {
        // The name is random, so that no other client is in its queue, and no real name's last
        // token changes.
        let name = LockName::new(&format!("dlock-doctor/{}", ClaimId::random()))?;
        if self.guarantees().fencing == Fencing::None {
            return Ok(meaningless());
        }
        // Without local hand-off, so that the store issues a new token.
        let guard = self.without_handoff().mutex(name)?.lock_timeout(WAIT).await?;
        let next = guard.token();
        // Awaited, so that only the last token of the name remains, and an error is reported.
        guard.release().await?;
        Ok(compare(seen, next))
    }

    /// The largest token that [`raise_tokens`](Self::raise_tokens) accepts; more than 10^12 larger
    /// tokens remain. A store may accept less: Redis counts exactly to 2^53.
    pub const MAX_RAISED_TOKEN: FencingToken = FencingToken::MAX.minus(ROOM);

    /// Raises the tokens of one lock: the store gives every later grant of it, to any client and of
    /// any kind, a token above `above`.
    ///
    /// Call it once for each lock after a restore from a backup or a loss of data, if the resource
    /// has seen larger tokens than the store now issues and therefore refuses every new holder.
    /// `above` is the last token that the resource has accepted
    /// ([`Fence::high_water`](crate::Fence::high_water)), as guards show it: a number without a
    /// unit, with the offset if one is set ([`TokenOffset`]). If the store's tokens are already
    /// above it, nothing changes: no call makes them smaller.
    ///
    /// The store remembers `above` as the last token of the name, in the same record and for the
    /// same time. **Call it again after another loss of data.** SQL stores remember `above` until
    /// their clock has passed it. On Redis, names share the record with others, whose tokens become
    /// larger as well.
    ///
    /// A client that holds the lock keeps it, with its token. Within 10 ms of a grant, its process
    /// may hand the lock off among its tasks with the next tokens of that grant.
    ///
    /// ```
    /// # use dlock_core::{FencingToken, Locks, Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
    /// let locks = Locks::new(Memory::new())?;
    /// let seen = FencingToken::new(1 << 60)?;
    /// locks.raise_tokens("inventory/42", seen).await?;
    /// let guard = locks.mutex("inventory/42")?.lock().await?;
    /// assert!(guard.token() > seen);
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - `Config(Name)`; `Config(Token)` for a token above
    ///   [`MAX_RAISED_TOKEN`](Self::MAX_RAISED_TOKEN), or above what the store can count to.
    ///   Nothing changes.
    /// - `Unsupported` if the store can't raise its tokens: ZooKeeper and etcd, whose tokens are
    ///   numbers of transactions, and the plain and advisory forms. Use a [`TokenOffset`] there.
    /// - `Unavailable`: the tokens may have been raised. Call it again; a second call does no harm.
    ///
    /// # Cancel safety
    /// The tokens may have been raised. Call it again.
    pub async fn raise_tokens(
        &self,
        name: impl IntoName,
        above: FencingToken,
    ) -> Result<(), Error> {
        let name = name.into_name()?;
        let backend = self.backend();
        // Checked before the request is sent: a token without room above it would make the name
        // unusable for ever.
        let raised = match above > Self::MAX_RAISED_TOKEN {
            true => Err(no_room_above(above)),
            // No claim and no hold is involved, so a lost answer leaves nothing to clean up. The
            // store raises the tokens before it answers, and a second call changes nothing.
            false => self.engine().while_it_runs(backend.raise_tokens(&name, above)).await,
        };
        raised.map_err(|error| {
            error.during("raise_tokens").with_lock(&name).with_store(backend.store())
        })
    }
}

fn no_room_above(above: FencingToken) -> Error {
    Error::config(
        ConfigIssue::Token,
        format!(
            "tokens can't be raised above {above}, because too few would be left: use at most {}",
            Locks::MAX_RAISED_TOKEN
        ),
    )
}

fn meaningless() -> Finding {
    Finding::wrong(
        ABOUT,
        "this store has no fencing tokens that a resource can compare, so they can't continue \
         above a token",
        "use dlock's own tables or keys, without dlock.plain",
    )
}

/// Returns the finding about a store whose next token is `next`.
fn compare(seen: FencingToken, next: FencingToken) -> Finding {
    if next > seen {
        return Finding::fine(ABOUT, format!("tokens are larger than {seen}: the next was {next}"));
    }
    let found = format!(
        "tokens are not larger than {seen}: the next was {next}, which the resource would refuse"
    );
    let (seen, next) = (seen.get(), next.get());
    // The first remedy replaces the offset, and needs room for the store's own tokens above it. The
    // second adds to an offset that is already part of `next`.
    let left = FencingToken::MAX.get() - seen;
    let more = seen - next + 1;
    let remedy = if seen <= TokenOffset::MAX && next <= left {
        format!(
            "set dlock.token_offset={seen} in the URL of every program that uses this store, \
             before any of them starts, and keep it"
        )
    } else if left >= ROOM && more <= TokenOffset::MAX {
        format!(
            "increase dlock.token_offset by {more} in the URL of every program that uses this \
             store, before any of them starts, and keep it"
        )
    } else {
        "no offset leaves enough tokens: stop all programs, and reset the token that the resource \
         has stored"
            .to_owned()
    };
    Finding::wrong(ABOUT, found, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_suggested_token_offset_is_sufficient() {
        let token = |value| FencingToken::new(value).unwrap();
        let max = FencingToken::MAX.get();
        for (seen, next, says) in [
            (7, 8, None),
            (max - 1, max, None),
            (8, 8, Some("dlock.token_offset=8 ")),
            (1 << 62, 1, Some("dlock.token_offset=4611686018427387904 ")),
            ((1 << 62) + 7, 8, Some("token_offset by 4611686018427387904 ")),
            ((1 << 62) + 8, 8, Some("no offset")),
            (1 << 62, 1 << 62, Some("token_offset by 1 ")),
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
