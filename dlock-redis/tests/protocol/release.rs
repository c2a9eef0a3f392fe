//! The short release of a lock for which no claim waits, and the long one.

use dlock_core::{ClaimId, Mode, Renewal, Renewed};
use dlock_testlab::Stop;

use crate::{
    replay::Recording,
    support::{LEASE, ask, connect, exclusive, free, granted, millis, queue, run, start, take},
};

/// Returns the number of keys of each release of this claim. All other requests about it contain
/// its lease.
async fn releases(recording: &mut Recording, claim: ClaimId) -> Result<Vec<usize>, Stop> {
    let lease = (LEASE + millis(1)).as_millis().to_string();
    let sent = recording.with(&claim.to_string()).await?;
    let is_script = |command: &&Vec<String>| command[0].starts_with("EVAL");
    let releases = sent.iter().filter(is_script).filter(|command| !command.contains(&lease));
    Ok(releases.filter_map(|command| command.get(2)?.parse().ok()).collect())
}

#[test]
fn an_uncontended_release_names_one_key() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        // From then on, the server has the scripts in its cache.
        for mode in [Mode::Exclusive, Mode::Shared] {
            let request = ask("b", mode);
            take(&client, &request).await?;
            free(&client, &request).await?;
        }
        let mut recording = Recording::start(&server).await?;
        let (alone, shared) = (exclusive("a"), ask("b", Mode::Shared));
        for (request, keys) in [(&alone, 1), (&shared, 5)] {
            take(&client, request).await?;
            free(&client, request).await?;
            assert_eq!(releases(&mut recording, request.claim).await?, [keys], "{request:?}");
        }
        let downgraded = exclusive("b");
        take(&client, &downgraded).await?;
        let renewal = Renewal::new(downgraded.as_claim(), Mode::Shared, downgraded.lease);
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
        free(&client, &downgraded).await?;
        assert_eq!(releases(&mut recording, downgraded.claim).await?, [5]);
        Ok(())
    });
}

#[test]
fn a_release_before_a_waiter_is_long_from_the_second_on() {
    run(async {
        let server = start().await?;
        let [one, two] = [connect(&server.url()).await?, connect(&server.url()).await?];
        let mut recording = Recording::start(&server).await?;
        for turn in 0..3 {
            let (holder, waiter) = (exclusive("a"), exclusive("a"));
            take(&one, &holder).await?;
            queue(&two, &waiter).await?;
            free(&one, &holder).await?;
            granted(&two, &waiter).await?;
            free(&two, &waiter).await?;
            let sent = releases(&mut recording, holder.claim).await?;
            match turn {
                // The holder learns of the waiter from the answer. The texts are sent as well.
                0 => assert!(sent.starts_with(&[1]) && sent.ends_with(&[5]), "{sent:?}"),
                _ => assert_eq!(sent, [5], "turn {turn}"),
            }
            assert!(!releases(&mut recording, waiter.claim).await?.contains(&1));
        }
        Ok(())
    });
}
