//! Limits of a server: a quota that is used up, revisions that are compacted away, and few streams at
//! a time.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, DynBackend, Error, ErrorKind, Mode, Renewal, Renewed,
};
use dlock_testlab::{
    Flow, Proxy,
    etcd::{EtcdServer, Options},
};
use futures_util::{FutureExt, future::try_join_all};
use tokio::time::{Instant, sleep};

use crate::support::{
    ask, attempt, connect, exclusive, fails, free, granted, keys, queue, refused, renew, run, says,
    start, take, until, until_it_works, url, works,
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
                // The watch is set before or after the compaction.
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

/// The number of locks. Each of them reads its key once its watch is set.
const MANY: usize = 400;

/// The time that each answer takes. The reads of all locks together take longer than a session lasts.
const SLOW: Duration = Duration::from_millis(100);

/// The time that a session lasts without heartbeats.
const SESSION: Duration = Duration::from_secs(15);

#[test]
fn heartbeats_precede_the_reads_of_many_watches() {
    run(async {
        let options = Options::new().with_flag("--max-concurrent-streams=4");
        let server = EtcdServer::start(&options).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let timeout = SESSION.as_secs();
        let url = format!("etcd://{}?dlock.session_timeout={timeout}s", proxy.address());
        let client = connect(&url).await?;
        let mut losses = client.events().ok_or("it reports no losses")?;
        let held: Vec<_> = (0..MANY).map(|at| exclusive(&at.to_string())).collect();
        // In groups, so that no request waits long for a stream.
        for group in held.chunks(20) {
            try_join_all(group.iter().map(|held| take(&client, held))).await?;
        }
        proxy.replies(Flow::Delay(SLOW));
        let slow = Instant::now();
        while slow.elapsed() < SESSION + Duration::from_secs(3) {
            sleep(Duration::from_secs(1)).await;
            // A renewal without an answer, or with an unknown outcome, loses no lock.
            if let Ok(renewed) = renewals(&client, &held).await {
                assert!(!renewed.contains(&Renewed::Lost), "a renewal finds a lock lost");
            }
        }
        proxy.replies(Flow::Pass);
        until("all renewals succeed", async || {
            let renewed = renewals(&client, &held).await;
            Ok(renewed.is_ok_and(|all| all.iter().all(|renewed| *renewed == Renewed::Kept)))
        })
        .await?;
        try_join_all(held.iter().map(|held| free(&client, held))).await?;
        assert!(losses.recv().now_or_never().is_none(), "a lock was lost");
        Ok(())
    });
}

#[test]
fn a_server_with_too_few_streams_is_refused() {
    run(async {
        for (streams, is_enough) in [(2, false), (3, false), (4, true)] {
            let options = Options::new().with_root("secret");
            let options = options.with_flag(&format!("--max-concurrent-streams={streams}"));
            let server = EtcdServer::start(&options).await?;
            if is_enough {
                works(&connect(&url(&server)).await?, "a").await?;
            } else {
                let error = refused(&url(&server)).await?;
                says(&error, ErrorKind::Unsupported, "--max-concurrent-streams");
                assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
            }
        }
        Ok(())
    });
}

/// Renews all locks with one request.
async fn renewals(client: &DynBackend, held: &[AcquireRequest]) -> Result<Vec<Renewed>, Error> {
    let renewals = held.iter().map(|held| Renewal::new(held.as_claim(), held.mode, held.lease));
    client.renew(&renewals.collect::<Vec<_>>()).await
}
