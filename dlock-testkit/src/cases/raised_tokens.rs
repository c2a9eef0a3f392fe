//! Raised tokens, for a resource that has seen larger tokens than the store remembers.

use dlock_core::{
    ConfigIssue, DynBackend, ErrorKind, FencingToken, Lock, LockName, Released, Renewed,
};

use crate::{
    Stop, Verdict,
    case::Cx,
    stop::{ensure_eq, ensure_safe},
    verbs::{alone, queue, release, renew, take},
};

/// A distance in microseconds that no store's clock covers while a case runs.
const FAR: u64 = 1_000_000_000;

pub(crate) async fn tokens_of_all_clients_rise_above_it(cx: Cx) -> Verdict {
    let (client, other, name) = (cx.backend().await?, cx.locks().await?, cx.name("lock"));
    let mut floor = seen(&other, &name).await?.plus(FAR);
    raise(&client, &name, floor).await?;
    ensure_safe!(seen(&other, &name).await? > floor, "another client's token is not above {floor}");
    let locks = cx.locks_over(client, cx.steady())?;
    let (mutex, rw, multi) = (locks.mutex(&name)?, locks.rw(&name)?, locks.multi([&name])?);
    let kinds: [&dyn Lock; 4] = [&mutex, rw.write(), rw.read(), &multi];
    for lock in kinds {
        floor = floor.plus(FAR);
        locks.raise_tokens(&name, floor).await?;
        let guard = lock.lock().await?;
        ensure_safe!(guard.token() > floor, "{:?} is not above {floor}", guard.token());
        guard.release().await?;
        ensure_safe!(seen(&other, &name).await? > floor, "the next token is not above {floor}");
    }
    floor = floor.plus(FAR);
    let second = cx.name("second");
    locks.raise_tokens(&name, floor).await?;
    locks.raise_tokens(&second, floor).await?;
    let several = locks.multi([&name, &second])?.lock().await?;
    ensure_safe!(
        several.tokens().iter().all(|(_, token)| *token > floor),
        "{several:?} over {floor}"
    );
    several.release().await?;
    Ok(())
}

pub(crate) async fn tokens_behind_a_holder_rise_above_it(cx: Cx) -> Verdict {
    let (client, name) = (cx.backend().await?, cx.name("lock"));
    let (a, b) = (cx.backend().await?, cx.backend().await?);
    let mut floor = FencingToken::new(1)?;
    // A client that has held the lock before may use a shorter path to acquire it again.
    for _ in 0..3 {
        let (held, next) = (alone(&name), alone(&name));
        let token = take(&a, &held).await?.token;
        ensure_safe!(token > floor, "{token:?} is not above {floor}");
        floor = token.plus(FAR);
        raise(&client, &name, floor).await?;
        ensure_eq!(renew(&a, &held, held.lease).await?, Renewed::Kept, "the holder's renewal");
        let again = take(&a, &held).await?.token;
        ensure_eq!(again, token, "the holder's token, asked for again");
        release(&a, &held).await?;
        let token = take(&b, &next).await?.token;
        ensure_safe!(token > floor, "{token:?} is not above {floor}");
        release(&b, &next).await?;
    }
    Ok(())
}

pub(crate) async fn a_released_block_does_not_lower_it(cx: Cx) -> Verdict {
    let (client, name) = (cx.backend().await?, cx.name("lock"));
    for (used, part) in [(1, 500), (100, 999), (999, 999), (1, 1)] {
        let held = alone(&name).with_tokens(1000);
        let next = alone(&name);
        let first = take(&client, &held).await?.token;
        let floor = first.plus(part);
        raise(&client, &name, floor).await?;
        let released = client.release(&held.as_claim().with_used(used)).await?;
        ensure_eq!(released, Released::Released, "the release");
        let token = take(&client, &next).await?.token;
        ensure_safe!(token > floor, "{token:?} is not above {floor}");
        release(&client, &next).await?;
    }
    Ok(())
}

pub(crate) async fn tokens_in_reserve_are_not_used_below_it(cx: Cx) -> Verdict {
    let (client, name) = (cx.backend().await?, cx.name("lock"));
    let owner = cx.backend().await?;
    for ahead in [1, 100, 1000] {
        let (first, next) = (alone(&name), alone(&name));
        let floor = take(&owner, &first).await?.token.plus(ahead);
        release(&owner, &first).await?;
        raise(&client, &name, floor).await?;
        let token = take(&owner, &next).await?.token;
        ensure_safe!(token > floor, "{token:?} is not above {floor}");
        release(&owner, &next).await?;
    }
    Ok(())
}

pub(crate) async fn tokens_of_waiters_rise_above_it(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [held, first, second] = [alone(&name), alone(&name), alone(&name)];
    let floor = take(&a, &held).await?.token.plus(FAR);
    queue(&a, &first).await?;
    queue(&b, &second).await?;
    raise(&b, &name, floor).await?;
    release(&a, &held).await?;
    for (client, waiting) in [(&a, &first), (&b, &second)] {
        let grant = cx.within("the waiter is granted", client.granted(waiting)).await??;
        ensure_safe!(grant.token > floor, "{grant:?} is not above {floor}");
        release(client, waiting).await?;
    }
    Ok(())
}

/// Beyond 2^53, a double does not have every number, and two grants would have the same token.
pub(crate) async fn tokens_beyond_2_to_the_53_grow_or_are_refused(cx: Cx) -> Verdict {
    let (client, name) = (cx.backend().await?, cx.name("lock"));
    let mut last = FencingToken::new(1 << 53)?;
    match client.raise_tokens(&name, last).await {
        Err(error) if error.kind() == ErrorKind::Config(ConfigIssue::Token) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::Unsupported => return Err(not_raised()),
        raised => raised?,
    }
    for _ in 0..3 {
        let held = alone(&name);
        let token = take(&client, &held).await?.token;
        ensure_safe!(token > last, "{token:?} is not above {last}");
        let holders = client.inspect(&name).await?.holders;
        let seen = holders.first().and_then(|holder| holder.token);
        ensure_eq!(seen, Some(token), "the token that inspect shows");
        release(&client, &held).await?;
        last = token;
    }
    Ok(())
}

pub(crate) async fn where_it_can_not_be_it_is_refused_and_leaves_nothing(cx: Cx) -> Verdict {
    let (client, name) = (cx.backend().await?, cx.name("lock"));
    let floor = FencingToken::new(FAR)?;
    let refused = match client.raise_tokens(&name, floor).await {
        Ok(()) => return Err(Stop::ruled_out("this store can raise its tokens")),
        Err(error) => error,
    };
    ensure_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    let locks = cx.locks_over(client.clone(), cx.steady())?;
    let error = locks.raise_tokens(&name, floor).await.err().ok_or("tokens were raised")?;
    ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    ensure_eq!(error.lock(), Some(&name), "the lock that the error names");
    cx.free(&client, &name).await
}

/// Acquires the lock once, and returns its token.
async fn seen(locks: &dlock_core::Locks, name: &LockName) -> Result<FencingToken, Stop> {
    let guard = locks.mutex(name)?.lock().await?;
    let token = guard.token();
    guard.release().await?;
    Ok(token)
}

/// Raises the tokens, or rules the case out.
async fn raise(client: &DynBackend, name: &LockName, above: FencingToken) -> Verdict {
    match client.raise_tokens(name, above).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(not_raised()),
        raised => Ok(raised?),
    }
}

fn not_raised() -> Stop {
    Stop::ruled_out("this store can't raise its tokens")
}
