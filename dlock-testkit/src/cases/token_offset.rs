//! Tokens that the client raises by an offset.

use dlock_core::{
    DynBackend, ErrorKind, Fairness, Fence, FencingToken, Lock, LockState, Renewal, Renewed,
    TokenOffset,
};

use crate::{
    Verdict,
    case::Cx,
    stop::{ensure, ensure_eq, ensure_safe},
    verbs::{alone, queue, release, release_in_vain, take},
};

/// A number larger than any token of a store.
const OFFSET: u64 = 1 << 60;

pub(crate) async fn an_offset_is_in_every_token_that_is_seen(cx: Cx) -> Verdict {
    let (store, name) = (cx.backend().await?, cx.name("lock"));
    let lifted: DynBackend = TokenOffset::new(store.clone(), OFFSET)?;
    // The fence belongs to a resource that has seen another store's tokens.
    let fence = Fence::starting_at(FencingToken::new(OFFSET)?);
    let locks = cx.locks_over(lifted.clone(), cx.steady())?.without_handoff();
    let (mutex, rw, multi) = (locks.mutex(&name)?, locks.rw(&name)?, locks.multi([&name])?);
    let kinds: [&dyn Lock; 4] = [&mutex, rw.write(), rw.read(), &multi];
    for lock in kinds {
        let guard = lock.lock().await?;
        fence.admit(guard.token())?;
        let (own, seen) = (store.inspect(&name).await?, lifted.inspect(&name).await?);
        ensure_eq!(tokens(&seen), lift(&tokens(&own)), "the tokens that are seen");
        let is_ours = tokens(&seen)[0].is_none_or(|token| token == guard.token().get());
        ensure!(is_ours, "{:?} is held, and seen is {seen:?}", guard.token());
        guard.release().await?;
    }
    let several = locks.multi([&name, &cx.name("second")])?.lock().await?;
    for (_, token) in several.tokens() {
        ensure_safe!(token.get() > OFFSET, "{token:?} of several is not above the offset");
    }
    several.release().await?;
    Ok(())
}

pub(crate) async fn an_offset_is_in_no_token_that_the_store_is_asked_about(cx: Cx) -> Verdict {
    let (store, name) = (cx.backend().await?, cx.name("lock"));
    let lifted: DynBackend = TokenOffset::new(store.clone(), OFFSET)?;
    let (held, next) = (alone(&name), alone(&name));
    let first = take(&lifted, &held).await?.token;
    let renewal = Renewal::new(held.as_claim(), held.mode, held.lease).with_token(first);
    ensure_eq!(lifted.renew(std::slice::from_ref(&renewal)).await?, [Renewed::Kept], "a renewal");
    if cx.guarantees().fairness >= Fairness::Fifo {
        queue(&lifted, &next).await?;
        release(&store, &held).await?;
        let grant = cx.within("the waiter is granted", lifted.granted(&next)).await??;
        ensure_safe!(grant.token > first, "{grant:?} is not above {first}");
        release(&lifted, &next).await?;
    } else {
        release(&store, &held).await?;
    }
    // The lock was revoked, but the store has not lost its data.
    ensure_eq!(lifted.renew(&[renewal]).await?, [Renewed::Lost], "a renewal of what is gone");
    release_in_vain(&lifted, &held).await?;
    match lifted.raise_tokens(&name, first.plus(1_000_000_000)).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        raised => raised?,
    }
    let last = alone(&name);
    let token = take(&lifted, &last).await?.token;
    ensure_safe!(token > first.plus(1_000_000_000), "{token:?} is not above the floor");
    release(&lifted, &last).await
}

/// Returns the tokens of all holders of a name, and the last token.
fn tokens(state: &LockState) -> Vec<Option<u64>> {
    let holders = state.holders.iter().map(|holder| holder.token);
    holders.chain([state.last_token]).map(|token| token.map(FencingToken::get)).collect()
}

fn lift(tokens: &[Option<u64>]) -> Vec<Option<u64>> {
    tokens.iter().map(|token| token.map(|token| token + OFFSET)).collect()
}
