//! Claims of a later format in a lock's directory: the error names the format, and the node stays
//! unchanged.

use std::fmt::Debug;

use dlock_core::{Error, ErrorKind, Mode, Renewal, Renewed};

use crate::support::{
    ask, attempt, connect, exclusive, fails, free, granted, queue, raw, renew, run, says, start,
    take, url, works,
};

const SAYS: &str = "has format 9, and this program reads format";

#[track_caller]
fn is_unknown<T: Debug>(answer: Result<T, Error>) {
    says(&answer.expect_err("it can't be read"), ErrorKind::Protocol, SAYS);
}

/// Returns the path of a claim's node, with a name of an unknown format.
fn later(number: u32) -> String {
    format!("/dlock/a/_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-v9-lock-{number:010}")
}

#[test]
fn nobody_gets_a_lock_behind_a_claim_of_a_later_format() {
    run(async {
        let (server, client) = start().await?;
        works(&client, "b").await?;
        server.create("/dlock/a", "").await?;
        server.create(&later(0), "theirs").await?;
        let modes = [ask("a", Mode::Exclusive), ask("a", Mode::Shared), attempt("a")];
        for request in modes.into_iter().chain([ask("a", Mode::permits(1, 2)?)]) {
            is_unknown(Err::<(), _>(fails(&client, &request).await?));
            // The core does this after an unknown outcome.
            client.release(&request.as_claim()).await?;
        }
        let both = [exclusive("a"), exclusive("b")];
        is_unknown(client.acquire_all(&both).ok_or("it takes several at once")?.await);
        for request in &both {
            client.release(&request.as_claim()).await?;
        }
        is_unknown(client.inspect(&exclusive("a").name).await);
        let admin = client.admin().ok_or("it has one")?;
        assert_eq!(admin.list("", 9).await?, [exclusive("a").name]);
        assert_eq!(server.nodes_under("/dlock/a").await?, [later(0)]);
        assert_eq!(server.data(&later(0)).await?.as_deref(), Some(&b"theirs"[..]));
        works(&client, "b").await
    });
}

#[test]
fn a_node_of_a_later_format_does_not_block_earlier_claims() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        server.create(&later(7), "theirs").await?;
        renew(&client, &held).await?;
        free(&client, &held).await?;
        granted(&other, &waiting).await?;
        renew(&other, &waiting).await?;
        is_unknown(client.inspect(&held.name).await);
        free(&other, &waiting).await?;
        assert_eq!(server.nodes_under("/dlock/a").await?, [later(7)]);
        Ok(())
    });
}

/// A claim that is renewed before its grant was noticed may hold the lock.
#[test]
fn a_renewal_behind_a_claim_of_a_later_format_is_unknown() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let (first, second) = (exclusive("a"), exclusive("a"));
        take(&other, &first).await?;
        queue(&client, &second).await?;
        let held = exclusive("b");
        take(&client, &held).await?;
        server.create(&later(0), "theirs").await?;
        free(&other, &first).await?;
        let renewals = [&held, &second]
            .map(|request| Renewal::new(request.as_claim(), request.mode, request.lease));
        assert_eq!(client.renew(&renewals).await?, [Renewed::Kept, Renewed::Unknown]);
        raw(&server).await?.delete(&later(0), None).await?;
        assert_eq!(client.renew(&renewals).await?, [Renewed::Kept, Renewed::Kept]);
        free(&client, &second).await?;
        free(&client, &held).await
    });
}

#[test]
fn data_of_a_later_format_is_an_error_and_the_lock_stays_held() {
    run(async {
        let (server, client) = start().await?;
        let (other, driver) = (connect(&url(&server)).await?, raw(&server).await?);
        let held = exclusive("a");
        take(&client, &held).await?;
        let nodes = server.nodes_under("/dlock/a").await?;
        let data = "lease=60000ms note=\u{1}9 web-3";
        driver.set_data(&nodes[0], data.as_bytes(), None).await?;
        renew(&client, &held).await?;
        is_unknown(other.inspect(&held.name).await);
        // A forced release, and a release of an unknown claim.
        is_unknown(other.release(&held.as_claim()).await);
        other.release(&exclusive("a").as_claim()).await?;
        assert_eq!(server.data(&nodes[0]).await?.as_deref(), Some(data.as_bytes()));
        // The names of nodes have the same meaning in each format.
        let waiting = exclusive("a");
        queue(&other, &waiting).await?;
        free(&client, &held).await?;
        granted(&other, &waiting).await?;
        free(&other, &waiting).await
    });
}

/// Data that was cut off counts as data of Curator: it has no lease and no note.
#[test]
fn data_that_was_cut_off_ends_no_lock() {
    run(async {
        let (server, client) = start().await?;
        let (other, driver) = (connect(&url(&server)).await?, raw(&server).await?);
        let held = exclusive("a");
        take(&client, &held).await?;
        let nodes = server.nodes_under("/dlock/a").await?;
        driver.set_data(&nodes[0], b"lease=600", None).await?;
        renew(&client, &held).await?;
        let state = other.inspect(&held.name).await?;
        assert_eq!((state.holders[0].claim, &state.holders[0].note), (held.claim, &None));
        assert_eq!(server.data(&nodes[0]).await?.as_deref(), Some(&b"lease=600"[..]));
        free(&client, &held).await
    });
}
