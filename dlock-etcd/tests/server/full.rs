//! A quota that is used up, and revisions that are compacted away.

use dlock_core::{Acquired, Certainty, ErrorKind, Mode, Renewal, Renewed};
use dlock_testlab::etcd::{EtcdServer, Options};

use crate::support::{
    ask, attempt, connect, exclusive, fails, free, granted, keys, queue, renew, run, says, start,
    take, until_it_works, url,
};

#[test]
fn a_full_database_takes_releases_and_hand_offs() {
    run(async {
        let server = EtcdServer::start(&Options::new().with_quota(16 << 20)).await?;
        let (client, other) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        let (held, next, third) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &next).await?;
        queue(&client, &third).await?;
        server.fill().await?;
        for request in [exclusive("b"), attempt("b", Mode::Exclusive), ask("b", Mode::Shared)] {
            for backend in [&client, &other] {
                let error = fails(backend, &request).await?;
                says(&error, ErrorKind::Unavailable, "quota");
                assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
            }
        }
        renew(&client, &held).await?;
        free(&client, &held).await?;
        granted(&other, &next).await?;
        free(&other, &next).await?;
        granted(&client, &third).await?;
        let findings = client.examine().await?;
        let alarm = findings.iter().find(|finding| finding.about == "alarms").ok_or("no alarm")?;
        assert!(alarm.found.contains("NOSPACE"), "{alarm:?}");
        free(&client, &third).await?;
        server.make_room().await?;
        for backend in [&client, &other] {
            until_it_works(backend).await?;
        }
        assert!(keys(&server, "b").await?.is_empty());
        Ok(())
    });
}

#[test]
fn a_compaction_does_not_disturb_holders_and_waiters() {
    run(async {
        let (server, client, other) = start().await?;
        let permits = |n| Mode::Permits { n, of: 3 };
        for (held, next) in [
            (Mode::Exclusive, Mode::Exclusive),
            (Mode::Exclusive, Mode::Shared),
            (permits(3), permits(2)),
        ] {
            let (held, next) = (ask("a", held), ask("a", next));
            take(&client, &held).await?;
            assert_eq!(other.acquire(&next).await?, Acquired::Queued);
            let waiting = granted(&other, &next);
            let compacting = async {
                // Its watch is set by then, or is set after the compaction.
                for _ in 0..3 {
                    server.put("/other", "x").await?;
                    server.compact().await?;
                }
                let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
                assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
                free(&client, &held).await
            };
            let (granted, compacted) = tokio::join!(waiting, compacting);
            compacted?;
            granted?;
            free(&other, &next).await?;
        }
        Ok(())
    });
}
