//! Notes: texts that identify claims to people.

use std::sync::Arc;

use dlock_core::{
    AcquireRequest, ClaimState, DynBackend, ErrorKind, LockName, Mode, Note, Noted, Renewed,
};

use crate::{
    Stop, Verdict,
    case::Cx,
    stop::{ensure_eq, ensure_safe},
    verbs::{alone, ask, downgrade, queue, release, renew, take, tried},
};

/// Returns the same request with a note.
fn noted(request: AcquireRequest, note: &str) -> Result<AcquireRequest, Stop> {
    Ok(request.with_note(Note::new(note)?))
}

/// Returns the notes of the holders of a name, and those of its waiters.
async fn notes(
    backend: &DynBackend,
    name: &LockName,
) -> Result<[Vec<Option<String>>; 2], dlock_core::Error> {
    let state = backend.inspect(name).await?;
    let of = |claims: &[ClaimState]| {
        claims.iter().map(|claim| claim.note.as_ref().map(Note::to_string)).collect()
    };
    Ok([of(&state.holders), of(&state.waiters)])
}

fn some(note: &str) -> Option<String> {
    Some(note.to_owned())
}

pub(crate) async fn a_holder_has_its_note_until_it_goes(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    // A client that has held the lock before may use a shorter path to acquire it again.
    for round in 0..4 {
        let note = format!("web-{round} pid 4711 migrate");
        let request = noted(alone(&name), &note)?;
        take(&a, &request).await?;
        for client in [&a, &b] {
            ensure_eq!(notes(client, &name).await?, [vec![some(&note)], vec![]], "the notes");
        }
        // A repeated request does not change the note.
        take(&a, &request).await?;
        ensure_eq!(notes(&b, &name).await?[0], [some(&note)], "the note after a resend");
        release(&a, &request).await?;
        ensure_eq!(notes(&b, &name).await?, [vec![], vec![]], "the notes of a free lock");
        // The next claim does not inherit the note.
        let plain = alone(&name);
        take(&a, &plain).await?;
        ensure_eq!(notes(&b, &name).await?[0], [None], "the note of a claim without one");
        release(&a, &plain).await?;
    }
    Ok(())
}

pub(crate) async fn a_waiter_has_its_note_and_keeps_it(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let first = noted(alone(&name), "first")?;
    let second = noted(alone(&name), "second")?;
    let (third, last) = (alone(&name), noted(alone(&name), "last")?);
    take(&a, &first).await?;
    queue(&b, &second).await?;
    queue(&a, &third).await?;
    queue(&b, &last).await?;
    let waiting = vec![some("second"), None, some("last")];
    ensure_eq!(notes(&a, &name).await?, [vec![some("first")], waiting.clone()], "the notes");
    // A heartbeat changes nothing.
    queue(&b, &second).await?;
    ensure_eq!(notes(&a, &name).await?[1], waiting, "the notes after a sign of life");
    release(&a, &first).await?;
    let seen = [vec![some("second")], vec![None, some("last")]];
    ensure_eq!(notes(&a, &name).await?, seen, "the notes after a release");
    cx.within("the waiter is granted", b.granted(&second)).await??;
    ensure_eq!(notes(&a, &name).await?, seen, "the notes after the grant was told");
    release(&a, &third).await?;
    release(&b, &second).await?;
    ensure_eq!(notes(&a, &name).await?, [vec![some("last")], vec![]], "the note of the last");
    release(&b, &last).await
}

pub(crate) async fn claims_that_share_have_a_note_each(cx: Cx) -> Verdict {
    let (a, b, name) = (cx.backend().await?, cx.backend().await?, cx.name("lock"));
    let one = noted(ask(&name, Mode::Shared), "one")?;
    let (two, three) = (ask(&name, Mode::Shared), noted(ask(&name, Mode::Shared), "three")?);
    for (client, request) in [(&a, &one), (&b, &two), (&a, &three)] {
        take(client, request).await?;
    }
    let writer = noted(alone(&name), "writer")?;
    queue(&b, &writer).await?;
    let seen = [vec![some("one"), None, some("three")], vec![some("writer")]];
    ensure_eq!(notes(&a, &name).await?, seen, "the notes");
    release(&a, &one).await?;
    ensure_eq!(notes(&b, &name).await?[0], [None, some("three")], "the notes of who is left");
    release(&b, &two).await?;
    release(&a, &three).await?;
    ensure_eq!(notes(&a, &name).await?, [vec![some("writer")], vec![]], "the writer's note");
    release(&b, &writer).await
}

pub(crate) async fn permits_have_a_note_each(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("permits"));
    let of = |n, note| noted(ask(&name, Mode::permits(n, 4)?), note);
    let (light, heavy) = (of(1, "light")?, of(3, "heavy")?);
    take(&backend, &light).await?;
    take(&backend, &heavy).await?;
    let seen = notes(&backend, &name).await?;
    ensure_eq!(seen[0], [some("light"), some("heavy")], "the notes");
    renew(&backend, &light, light.lease).await?;
    release(&backend, &light).await?;
    ensure_eq!(notes(&backend, &name).await?[0], [some("heavy")], "the note of who is left");
    release(&backend, &heavy).await
}

pub(crate) async fn no_renewal_changes_a_note(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let request = noted(alone(&name), "holder")?;
    take(&backend, &request).await?;
    for _ in 0..2 {
        ensure_eq!(renew(&backend, &request, cx.renewed()).await?, Renewed::Kept, "the renewal");
        let seen = notes(&backend, &name).await?;
        ensure_eq!(seen[0], [some("holder")], "the note after a renewal");
    }
    ensure_eq!(downgrade(&backend, &request).await?, Renewed::Kept, "the downgrade");
    ensure_eq!(notes(&backend, &name).await?[0], [some("holder")], "the note of a reader");
    ensure_eq!(downgrade(&backend, &request).await?, Renewed::Kept, "a reader's renewal");
    ensure_eq!(notes(&backend, &name).await?[0], [some("holder")], "the note of a renewed reader");
    release(&backend, &request).await
}

pub(crate) async fn a_note_stays_when_tokens_are_raised(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let request = noted(alone(&name), "holder")?;
    let token = take(&backend, &request).await?.token;
    match backend.raise_tokens(&name, token.plus(1000)).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            release(&backend, &request).await?;
            return Err(Stop::ruled_out("this store's tokens can't be raised"));
        }
        raised => raised?,
    }
    ensure_eq!(notes(&backend, &name).await?[0], [some("holder")], "the note");
    release(&backend, &request).await
}

pub(crate) async fn every_note_is_stored_unchanged(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let longest = "x".repeat(Note::MAX_BYTES);
    for note in [
        " ", "  two  ", "a;b:c/d", "100% %20", "n", "note=", "'\"\\`$", "{}[]?*", "é 🔒", "1",
        "?5/6", &longest,
    ] {
        let request = noted(alone(&name), note)?;
        take(&backend, &request).await?;
        ensure_eq!(notes(&backend, &name).await?[0], [some(note)], "the note");
        renew(&backend, &request, request.lease).await?;
        ensure_safe!(
            tried(&backend, &alone(&name)).await?.is_none(),
            "held with {note:?}, it is free"
        );
        release(&backend, &request).await?;
    }
    Ok(())
}

pub(crate) async fn all_locks_of_a_client_have_its_note(cx: Cx) -> Verdict {
    let noted = Noted::new(cx.backend().await?, Note::new("web-3")?);
    let (a, b) = (cx.locks().await?, cx.locks_over(noted, cx.steady())?);
    let names = ["a", "b", "c"].map(|hint| cx.name(hint));
    let a = a.backend();
    for _ in 0..3 {
        let guard = b.mutex(&names[0])?.lock().await?;
        ensure_eq!(notes(a, &names[0]).await?[0], [some("web-3")], "the note of a mutex");
        guard.release().await?;
    }
    // A view with other options belongs to the same client.
    let guard = b.with_options(cx.renewing())?.rw(&names[0])?.write().lock().await?;
    ensure_eq!(notes(a, &names[0]).await?[0], [some("web-3")], "the note of a writer");
    guard.release().await?;
    let guard = b.multi(&names)?.lock().await?;
    for name in &names {
        ensure_eq!(notes(a, name).await?[0], [some("web-3")], "the note of one of several");
    }
    guard.release().await?;
    let guard = b.election(&names[1])?.campaign().await?;
    ensure_eq!(notes(a, &names[1]).await?[0], [some("web-3")], "the note of a leader");
    guard.resign().await?;
    Ok(())
}

pub(crate) async fn a_claim_without_a_note_shows_none(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    for mode in [Mode::Exclusive, Mode::Shared] {
        let request = ask(&name, mode);
        take(&backend, &request).await?;
        ensure_eq!(notes(&backend, &name).await?[0], [None], "the note of a claim without one");
        release(&backend, &request).await?;
    }
    Ok(())
}

pub(crate) async fn where_it_can_not_be_it_is_left_out(cx: Cx) -> Verdict {
    let (backend, name) = (cx.backend().await?, cx.name("lock"));
    let request = noted(alone(&name), "web-3")?;
    take(&backend, &request).await?;
    ensure_eq!(notes(&backend, &name).await?[0], [None], "a note on a store that keeps none");
    release(&backend, &request).await
}

pub(crate) async fn a_claim_keeps_its_own_note(cx: Cx) -> Verdict {
    let (store, name) = (cx.backend().await?, cx.name("lock"));
    let noted_store: DynBackend = Noted::new(Arc::clone(&store), Note::new("client")?);
    let own = noted(alone(&name), "claim")?;
    take(&noted_store, &own).await?;
    ensure_eq!(notes(&store, &name).await?[0], [some("claim")], "the claim's own note");
    release(&noted_store, &own).await?;
    let plain = alone(&name);
    take(&noted_store, &plain).await?;
    ensure_eq!(notes(&store, &name).await?[0], [some("client")], "the client's note");
    release(&noted_store, &plain).await
}
