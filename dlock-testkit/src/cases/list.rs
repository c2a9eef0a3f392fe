//! Lists names by their prefix: all that are in use, and no others.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use dlock_core::{Admin as _, DynBackend, ErrorKind, LockName, Mode, Prefixed};
use futures_util::future::try_join_all;

use super::names::HOSTILE;
use crate::{
    Stop, Verdict,
    case::{Cx, now, pass},
    stop::{ensure, ensure_eq},
    verbs::{alone, ask, queue, release, renew_last, take},
};

/// A limit larger than the number of names.
const ALL: usize = 1 << 20;
/// More names than a store reads in one request, so that it needs several.
const MANY: usize = 300;

pub(crate) async fn names_with_the_prefix_are_listed(cx: Cx) -> Verdict {
    let (a, b, base) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let names = below(&cx, &base, &["", "/a", "/b", "/b/c", "ß"])?;
    let requests: Vec<_> = names.iter().map(alone).collect();
    for (at, request) in requests.iter().enumerate() {
        take(if at % 2 == 0 { &a } else { &b }, request).await?;
    }
    for client in [&a, &b] {
        for ends in ["", "/", "/a", "/b", "/b/", "/b/c", "/b/c/d", "ß", "s"] {
            let prefix = format!("{base}{ends}");
            let expected = beginning(&names, &prefix);
            ensure_eq!(list(client, &prefix).await?, expected, "what begins with {prefix:?}");
        }
        let all = list(client, "").await?;
        ensure!(names.iter().all(|name| all.contains(name)), "not all are among {all:?}");
        for never in [format!("{base}\0"), format!("{base}\n"), "x".repeat(5000)] {
            ensure!(list(client, &never).await?.is_empty(), "{never:.600?} begins a name");
        }
    }
    for request in &requests {
        release(&a, request).await?;
    }
    Ok(())
}

pub(crate) async fn a_prefix_is_not_a_pattern(cx: Cx) -> Verdict {
    let (client, base) = (cx.locks().await?, cx.name("lock"));
    let more = [
        "a*", "a_", "a%", "ab", "A", "AB", "a?", "a[b]", "a[^b]", "a[a-z]", "a\\*", "a\\", "a.b",
        "a{b,c}",
    ];
    let endings: BTreeSet<&str> = HOSTILE.iter().chain(&more).copied().collect();
    let endings: Vec<&str> = endings.into_iter().collect();
    let names = below(&cx, &base, &endings)?;
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.mutex(name)?.try_lock().await?.ok_or(format!("{name:?} is held"))?);
    }
    let backend = client.backend();
    for prefix in &names {
        let expected = beginning(&names, prefix.as_str());
        ensure_eq!(list(backend, prefix.as_str()).await?, expected, "what begins with {prefix:?}");
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn no_more_are_listed_than_asked_for(cx: Cx) -> Verdict {
    let (client, base) = (cx.backend().await?, cx.name("lock"));
    list(&client, base.as_str()).await?;
    let endings: Vec<String> = (0..MANY).map(|n| format!("/{n}")).collect();
    let names = below(&cx, &base, &endings.iter().map(String::as_str).collect::<Vec<_>>())?;
    let requests: Vec<_> = names.iter().map(alone).collect();
    for some in requests.chunks(20) {
        try_join_all(some.iter().map(|request| take(&client, request))).await?;
    }
    for limit in [0, 1, 7, MANY - 1, MANY, MANY + 1, usize::MAX] {
        let listed = client.list(base.as_str(), limit).await?;
        let distinct: BTreeSet<_> = listed.iter().collect();
        ensure_eq!(distinct.len(), listed.len(), "names and different ones, of {limit}");
        ensure_eq!(listed.len(), limit.min(MANY), "how many are listed of {limit}");
        ensure!(listed.iter().all(|name| names.contains(name)), "others are listed: {listed:?}");
    }
    for some in requests.chunks(20) {
        try_join_all(some.iter().map(|request| release(&client, request))).await?;
    }
    Ok(())
}

pub(crate) async fn names_with_many_claims_are_listed_once(cx: Cx) -> Verdict {
    let (a, b, base) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let names = below(&cx, &base, &["readers", "readers and a writer", "writer", "permits"])?;
    let permits = Mode::permits(2, 5)?;
    let held = [
        ask(&names[0], Mode::Shared),
        ask(&names[0], Mode::Shared),
        ask(&names[1], Mode::Shared),
        alone(&names[2]),
        ask(&names[3], permits),
        ask(&names[3], permits),
    ];
    let waiting = [alone(&names[1]), ask(&names[2], Mode::Shared), ask(&names[3], permits)];
    for request in &held {
        take(&a, request).await?;
    }
    for request in &waiting {
        queue(&b, request).await?;
    }
    for client in [&a, &b] {
        ensure_eq!(list(client, base.as_str()).await?, names, "with holders and waiters");
    }
    let locks = cx.locks().await?;
    let several = below(&cx, &base, &["first of several", "second of several"])?;
    let guard = locks.multi(&several)?.lock().await?;
    let listed = locks.list(&format!("{base}"), ALL).await?;
    ensure!(several.iter().all(|name| listed.contains(name)), "{listed:?} lack {several:?}");
    guard.release().await?;
    for request in &held {
        release(&a, request).await?;
    }
    // Former waiters hold the other names now. The first name had only readers, so it is free.
    ensure_eq!(list(&a, base.as_str()).await?, names[1..], "with those that waited");
    for request in &waiting {
        cx.within("the waiter is granted", b.granted(request)).await??;
        release(&b, request).await?;
    }
    Ok(())
}

pub(crate) async fn a_name_that_only_waits_is_listed(cx: Cx) -> Verdict {
    let (client, other, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let (ended, waiter) = (alone(&name), alone(&name));
    take(&client, &ended).await?;
    queue(&client, &waiter).await?;
    renew_last(&client, &ended, cx.lease()).await?;
    // The store may grant the lock to the waiter only when the next request arrives.
    pass(cx.lease() * 2).await;
    let listed = list(&other, name.as_str()).await?;
    ensure!(listed.contains(&name), "a name with a waiter is not in {listed:?}");
    cx.within("the waiter is granted", client.granted(&waiter)).await??;
    release(&client, &waiter).await
}

pub(crate) async fn a_free_lock_is_not_listed(cx: Cx) -> Verdict {
    let (client, other, base) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let names = below(&cx, &base, &["stays", "released", "ended"])?;
    let [stays, released, ended] = [0, 1, 2].map(|at| alone(&names[at]));
    for request in [&stays, &released, &ended] {
        take(&client, request).await?;
    }
    ensure_eq!(list(&other, base.as_str()).await?, names, "what is held");
    release(&client, &released).await?;
    renew_last(&client, &ended, cx.lease()).await?;
    let left = beginning(&names, names[0].as_str());
    let gone = || async { Ok(list(&other, base.as_str()).await? == left) };
    cx.until("only what is held is listed", gone).await?;
    release(&client, &stays).await?;
    let gone = || async { Ok(list(&client, base.as_str()).await?.is_empty()) };
    cx.until("nothing is listed", gone).await
}

pub(crate) async fn a_lock_handed_off_during_a_listing_is_listed(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let onlooker = cx.backend().await?;
    list(&onlooker, name.as_str()).await?;
    let mut held = alone(&name);
    take(&a, &held).await?;
    let (end, looks) = (now().saturating_add(cx.lease()), AtomicBool::new(true));
    let looking = async {
        let mut listed = vec![name.clone()];
        while now() < end && listed.contains(&name) {
            listed = list(&onlooker, name.as_str()).await?;
        }
        ensure!(listed.contains(&name), "it is held all the time, and not among {listed:?}");
        Ok(())
    };
    let looking = async {
        let looked = looking.await;
        looks.store(false, Ordering::SeqCst);
        looked
    };
    let handing_over = async {
        let mut turn = 0;
        // The lock is held until the listing has ended.
        while looks.load(Ordering::SeqCst) {
            turn += 1;
            // The mode alternates between exclusive and shared, so that the store's record of the
            // lock varies.
            let mode = if turn % 3 == 0 { Mode::Shared } else { Mode::Exclusive };
            let (from, to) = if turn % 2 == 0 { (&b, &a) } else { (&a, &b) };
            let next = ask(&name, mode);
            queue_or_join(to, &next).await?;
            release(from, &held).await?;
            cx.within("the waiter is granted", to.granted(&next)).await??;
            held = next;
        }
        release(&a, &held).await
    };
    let (looked, handed) = tokio::join!(looking, handing_over);
    handed?;
    looked
}

pub(crate) async fn the_prefix_of_a_client_is_removed(cx: Cx) -> Verdict {
    let (client, base) = (cx.backend().await?, cx.name("lock"));
    list(&client, base.as_str()).await?;
    let names = below(&cx, &base, &["", "/", "/a", "/b", "/bc"])?;
    let requests: Vec<_> = names.iter().map(alone).collect();
    for request in &requests {
        take(&client, request).await?;
    }
    let prefixed = Prefixed::new(client.clone(), &format!("{base}/"))?;
    for (prefix, expected) in [("", &["a", "b", "bc"][..]), ("b", &["b", "bc"]), ("/", &[])] {
        let mut listed = prefixed.list(prefix, ALL).await?;
        listed.sort();
        let listed: Vec<&str> = listed.iter().map(LockName::as_str).collect();
        ensure_eq!(listed, expected, "what begins with {prefix:?}");
        // The prefix itself is a name in use, but the result must not contain it.
        let exactly = prefixed.list(prefix, expected.len()).await?;
        ensure_eq!(exactly.len(), expected.len(), "how many begin with {prefix:?}");
    }
    for request in &requests {
        release(&client, request).await?;
    }
    Ok(())
}

pub(crate) async fn where_it_can_not_be_it_is_refused(cx: Cx) -> Verdict {
    let client = cx.locks().await?;
    let refused = match client.list("", 1).await {
        Ok(_) => return Err(Stop::ruled_out("this store can list its locks")),
        Err(error) => error,
    };
    ensure_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    ensure!(refused.to_string().contains("list"), "the error does not say of what: {refused}");
    Ok(())
}

/// Returns the names with this prefix in order, or rules the case out. Checks that none occurs
/// twice.
async fn list(client: &DynBackend, prefix: &str) -> Result<Vec<LockName>, Stop> {
    let mut names = match client.list(prefix, ALL).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Stop::ruled_out("this store can't list its locks"));
        }
        names => names?,
    };
    names.sort();
    ensure!(names.windows(2).all(|pair| pair[0] != pair[1]), "twice among {names:?}");
    Ok(names)
}

/// Adds a claim behind a holder, which either waits or shares the lock.
async fn queue_or_join(client: &DynBackend, request: &dlock_core::AcquireRequest) -> Verdict {
    client.acquire(request).await?;
    Ok(())
}

/// Returns names of a case with these endings, in order.
fn below(cx: &Cx, base: &LockName, endings: &[&str]) -> Result<Vec<LockName>, Stop> {
    let mut names = Vec::new();
    for ending in endings {
        names.push(cx.literal(&format!("{base}{ending}"))?);
    }
    names.sort();
    Ok(names)
}

fn beginning(names: &[LockName], prefix: &str) -> Vec<LockName> {
    names.iter().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
}
