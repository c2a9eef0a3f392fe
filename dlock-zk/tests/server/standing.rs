//! The state of a waiter whose blocker changes between two reads.

use dlock_core::{Mode, Renewal, Renewed};
use dlock_testkit::{Stop, Verdict};

use crate::{
    shared::start,
    support::{LEASE, ask, exclusive, free, granted, queue, renew, run, take},
};

/// A reader sees a writer before it that is not the first. By the time it waits for that writer,
/// the writer holds the lock and has become a reader.
#[test]
fn a_reader_is_granted_with_a_downgraded_later_writer() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let [first, writer] = [(); 2].map(|()| exclusive("late"));
        let reader = ask("late", Mode::Shared);
        take(&client, &first).await?;
        queue(&client, &writer).await?;
        queue(&other, &reader).await?;
        free(&client, &first).await?;
        granted(&client, &writer).await?;
        let weaker = Renewal::new(writer.as_claim(), Mode::Shared, LEASE);
        if client.renew(&[weaker]).await? != [Renewed::Kept] {
            return Err(Stop::failed("the downgrade is refused"));
        }
        granted(&other, &reader).await?;
        free(&other, &reader).await?;
        free(&client, &writer).await
    });
}

/// Permits that are granted without a wait for them, to a claim that others wait behind.
#[test]
fn a_waiter_behind_granted_permits_is_granted() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let all = ask("permits", Mode::permits(3, 3)?);
        let [next, last] =
            [ask("permits", Mode::permits(1, 3)?), ask("permits", Mode::permits(1, 3)?)];
        take(&client, &all).await?;
        queue(&client, &next).await?;
        queue(&other, &last).await?;
        let waiting = granted(&other, &last);
        let passing = async {
            free(&client, &all).await?;
            // It learns so that it holds its permits, and not by a wait.
            renew(&client, &next).await
        };
        let (grant, passed): (_, Verdict) = tokio::join!(waiting, passing);
        passed?;
        grant?;
        free(&other, &last).await?;
        free(&client, &next).await
    });
}
