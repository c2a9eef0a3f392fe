//! Tokens grow with every grant, however the previous hold ended.

use std::sync::Arc;

use dlock_core::{Fence, FencingToken, Lock, Mode, Renew};
use parking_lot::Mutex;

use crate::{
    Stop, Verdict,
    case::{Crew, Cx, pass},
    stop::{ensure, ensure_safe},
    verbs::{alone, ask, leased, queue, release, take, tried},
};

pub(crate) async fn token_grows_after_release(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let mut tokens = Growing::default();
    for _ in 0..10 {
        let guard = locks.mutex(&name)?.lock().await?;
        tokens.next(guard.token())?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn token_grows_across_clients_and_kinds(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let mut tokens = Growing::default();
    for locks in [&a, &b, &a, &b] {
        let direct = locks.without_handoff();
        let (mutex, other) = (locks.mutex(&name)?, direct.mutex(&name)?);
        let rw = locks.rw(&name)?;
        let kinds: [&dyn Lock; 4] = [&mutex, rw.write(), rw.read(), &other];
        for lock in kinds {
            let guard = lock.lock().await?;
            tokens.next(guard.token())?;
            guard.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn token_grows_after_expiry(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let mut tokens = Growing::default();
    for _ in 0..3 {
        tokens.next(take(&backend, &leased(alone(&name), cx.lease())).await?.token)?;
        pass(cx.lease() * 2).await;
    }
    let last = alone(&name);
    tokens.next(take(&backend, &last).await?.token)?;
    release(&backend, &last).await
}

pub(crate) async fn token_grows_across_local_hand_off(cx: Cx) -> Verdict {
    let (locks, name) = (cx.locks().await?, cx.name("lock"));
    let tokens = Arc::new(Mutex::new(Growing::default()));
    let mut crew = Crew::new();
    for _ in 0..8 {
        let (mutex, tokens) = (locks.mutex(&name)?, tokens.clone());
        crew.go(async move {
            for _ in 0..20 {
                let guard = mutex.lock().await?;
                tokens.lock().next(guard.token())?;
                guard.release().await?;
            }
            Ok(())
        });
    }
    crew.done(&cx).await
}

pub(crate) async fn token_grows_after_the_store_forgot_the_name(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let mut tokens = Growing::default();
    for locks in [&a, &b, &b] {
        let guard = locks.mutex(&name)?.lock().await?;
        tokens.next(guard.token())?;
        guard.release().await?;
        cx.free(locks.backend(), &name).await?;
        cx.forget(&name).await?;
    }
    Ok(())
}

pub(crate) async fn token_grows_after_a_busy_try_and_a_cancel(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let mut tokens = Growing::default();
    for _ in 0..3 {
        let [held, busy, cancelled] = [alone(&name), alone(&name), alone(&name)];
        tokens.next(take(&backend, &held).await?.token)?;
        ensure_safe!(tried(&backend, &busy).await?.is_none(), "a held lock is free");
        queue(&backend, &cancelled).await?;
        release(&backend, &cancelled).await?;
        release(&backend, &held).await?;
    }
    Ok(())
}

pub(crate) async fn blocks_of_tokens_do_not_meet(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let mut tokens = Growing::default();
    // The second number says how many tokens of the block were used. Zero means that the client
    // does not report it.
    for (backend, used) in [(&a, 8), (&b, 1), (&a, 0), (&a, 4), (&b, 0)] {
        let request = alone(&name).with_tokens(8);
        let grant = take(backend, &request).await?;
        ensure!((1..=8).contains(&grant.tokens), "{grant:?} of a block of 8");
        tokens.next(grant.token)?;
        let used: u32 = grant.tokens.min(used);
        if used > 0 {
            tokens.at_least(grant.token.plus(u64::from(used - 1)));
        }
        backend.release(&request.as_claim().with_used(used)).await?;
    }
    Ok(())
}

pub(crate) async fn an_expired_block_is_passed_over(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let dead = leased(alone(&name), cx.lease()).with_tokens(1000);
    let grant = take(&backend, &dead).await?;
    pass(cx.lease() * 2).await;
    let next = alone(&name);
    let token = take(&backend, &next).await?.token;
    let last = grant.token.plus(u64::from(grant.tokens) - 1);
    ensure_safe!(token > last, "{token:?} lies in the block of {grant:?}");
    release(&backend, &next).await
}

pub(crate) async fn readers_have_a_token_each(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let [writer, one, two, three] =
        [Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Shared].map(|mode| ask(&name, mode));
    let mut tokens = Growing::default();
    tokens.next(take(&a, &writer).await?.token)?;
    queue(&a, &one).await?;
    queue(&b, &two).await?;
    release(&a, &writer).await?;
    // One release grants both.
    tokens.next(take(&a, &one).await?.token)?;
    tokens.next(take(&b, &two).await?.token)?;
    tokens.next(take(&b, &three).await?.token)?;
    for request in [&one, &two, &three] {
        release(&a, request).await?;
    }
    Ok(())
}

pub(crate) async fn permits_have_a_token_each(cx: Cx) -> Verdict {
    let (a, b, name) = cx.pair().await?;
    let mut tokens = Growing::default();
    let mut guards = Vec::new();
    for locks in [&a, &b, &a] {
        let guard = locks.semaphore(&name, 3)?.acquire().await?;
        tokens.next(guard.token())?;
        guards.push(guard);
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn a_fence_refuses_a_former_holder(cx: Cx) -> Verdict {
    let stale = cx.locks_with(cx.brief().with_renew(Renew::Never)).await?;
    let (fresh, name, fence) = (cx.locks().await?, cx.name("lock"), Fence::new());
    let old = stale.mutex(&name)?.lock().await?;
    fence.admit(old.token())?;
    let new = fresh.mutex(&name)?.lock().await?;
    fence.admit(new.token())?;
    ensure!(fence.admit(old.token()).is_err(), "a write of who lost the lock passes");
    fence.admit(new.token())?;
    new.release().await?;
    Ok(())
}

/// Tokens that must grow.
#[derive(Default)]
struct Growing(Option<FencingToken>);

impl Growing {
    #[track_caller]
    fn next(&mut self, token: FencingToken) -> Verdict {
        if self.0.is_some_and(|last| last >= token) {
            return Err(Stop::violation(format!("{token:?} is not above {:?}", self.0)));
        }
        self.0 = Some(token);
        Ok(())
    }

    fn at_least(&mut self, token: FencingToken) {
        self.0 = self.0.max(Some(token));
    }
}
