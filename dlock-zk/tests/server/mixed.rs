//! A client that writes the newest format beside one that writes the format before it.

use dlock_core::{Format, Mode, Note, Renewal, Renewed};

use crate::support::{
    ask, connect, exclusive, free, granted, queue, renew, run, start, take, url, works_fully,
};

#[test]
fn clients_of_two_formats_share_locks() {
    run(async {
        let (server, old) = start().await?;
        let new = connect(&format!("{}&dlock.format=2", url(&server))).await?;
        works_fully(&old, &new, "a").await?;
        works_fully(&new, &old, "a").await?;
        let sides = [(&old, Format::OLDEST), (&new, Format::NEWEST)];
        for [(first, format), (second, other)] in [sides, [sides[1], sides[0]]] {
            for note in [None, Note::new("web-3 pid 1").ok()] {
                for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 3)?] {
                    let wanted = if mode == Mode::Shared { Mode::Exclusive } else { mode };
                    let held = ask("a", mode).with_note(note.clone());
                    let waiting = ask("a", wanted).with_note(note.clone());
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
                    free(second, &waiting).await?;
                }
            }
            // The mark of a renewal keeps the format.
            let (held, reader) = (exclusive("a"), ask("a", Mode::Shared));
            take(first, &held).await?;
            queue(second, &reader).await?;
            let weaker = Renewal::new(held.as_claim(), Mode::Shared, held.lease);
            assert_eq!(first.renew(&[weaker]).await?, [Renewed::Kept]);
            granted(second, &reader).await?;
            let state = second.inspect(&held.name).await?;
            let formats: Vec<_> = state.holders.iter().map(|holder| holder.format).collect();
            assert_eq!(formats, [format, other]);
            free(first, &held).await?;
            free(second, &reader).await?;
        }
        Ok(())
    });
}

/// The locks of a session end with it, so only the tokens outlive a client.
#[test]
fn tokens_grow_across_a_downgrade() {
    run(async {
        let (server, old) = start().await?;
        let new = connect(&format!("{}&dlock.format=2", url(&server))).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        let token = take(&new, &held).await?.token;
        queue(&old, &waiting).await?;
        drop(new);
        let grant = granted(&old, &waiting).await?;
        assert!(grant.token > token);
        free(&old, &waiting).await
    });
}
