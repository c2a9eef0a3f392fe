//! A client that writes the newest format beside one that writes the format before it.

use dlock_core::{Acquired, DynBackend, Format, Mode, Note, Renewal, Renewed};
use dlock_testlab::{
    Verdict,
    redis::{Options, RedisMasters},
};

use crate::support::{
    KEYS_OF_A, ask, connect, exclusive, free, granted, queue, renew, run, start, take, works_fully,
};

const H: &str = KEYS_OF_A[0];

async fn share(old: &DynBackend, new: &DynBackend) -> Verdict {
    works_fully(old, new, "a").await?;
    works_fully(new, old, "a").await?;
    let sides = [(old, Format::OLDEST), (new, Format::NEWEST)];
    for [(first, format), (second, other)] in [sides, [sides[1], sides[0]]] {
        for note in [None, Note::new("web-3 pid 1").ok()] {
            for mode in [Mode::Exclusive, Mode::Shared] {
                let held = ask("a", mode).with_note(note.clone());
                let waiting = exclusive("a").with_note(note.clone());
                let token = take(first, &held).await?.token;
                queue(second, &waiting).await?;
                for client in [first, second] {
                    let state = client.inspect(&held.name).await?;
                    let (holder, waiter) = (&state.holders[0], &state.waiters[0]);
                    assert_eq!((holder.format, waiter.format), (format, other));
                    assert_eq!((&holder.note, &waiter.note), (&note, &note));
                }
                renew(first, &held).await?;
                free(first, &held).await?;
                assert!(granted(second, &waiting).await?.token > token);
                let state = first.inspect(&held.name).await?;
                assert_eq!((state.holders[0].format, &state.holders[0].note), (other, &note));
                // Without a waiter, a release takes the short way.
                free(second, &waiting).await?;
                let alone = exclusive("a").with_note(note.clone());
                take(second, &alone).await?;
                free(second, &alone).await?;
            }
        }
    }
    Ok(())
}

#[test]
fn clients_of_two_formats_share_locks() {
    run(async {
        let (server, old) = start().await?;
        let new = connect(&format!("{}?dlock.format=2", server.url())).await?;
        share(&old, &new).await
    });
}

#[test]
fn a_downgrade_keeps_held_locks_places_and_tokens() {
    run(async {
        let (server, old) = start().await?;
        let new = connect(&format!("{}?dlock.format=2", server.url())).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        let token = take(&new, &held).await?.token;
        queue(&new, &waiting).await?;
        drop(new);
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
        assert_eq!(old.renew(&[renewal]).await?, [Renewed::Kept]);
        let state = old.inspect(&held.name).await?;
        assert_eq!((state.holders[0].claim, state.waiters[0].claim), (held.claim, waiting.claim));
        free(&old, &held).await?;
        let Acquired::Granted(grant) = old.acquire(&waiting).await? else { panic!("it is free") };
        assert!(grant.token > token);
        free(&old, &waiting).await?;
        // The next grant is written in the format of its own client.
        let next = exclusive("a");
        assert!(take(&old, &next).await?.token > grant.token);
        let value = server.command(&["GET", H]).await?.ok()?.text()?;
        assert_eq!(
            value,
            format!(
                "{}:{}",
                next.claim,
                old.inspect(&next.name).await?.holders[0].token.map_or(0, |t| t.get())
            )
        );
        free(&old, &next).await
    });
}

#[test]
fn clients_of_two_formats_share_locks_of_a_quorum() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let url = format!("{}?dlock.restart_guard=0s", masters.url());
        let old = connect(&url).await?;
        let new = connect(&format!("{url}&dlock.format=2")).await?;
        for (first, format, second) in [(&old, Format::OLDEST, &new), (&new, Format::NEWEST, &old)]
        {
            let held = exclusive("a");
            let token = take(first, &held).await?.token;
            let state = second.inspect(&held.name).await?;
            assert_eq!((state.holders[0].claim, state.holders[0].format), (held.claim, format));
            renew(first, &held).await?;
            free(first, &held).await?;
            let next = exclusive("a");
            assert!(take(second, &next).await?.token > token);
            free(second, &next).await?;
        }
        Ok(())
    });
}
