//! Acquires that reach the server after their client has lost its connection. No claim remains,
//! whether or not their deadline has passed.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, Mode, Queue, Renewal, Renewed};
use dlock_testlab::{
    Proxy, SteppedClock, Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::sleep;

use crate::{
    replay::Recording,
    support::{
        LEASE, ask, attempt, behind, connect, exclusive, free, millis, queue, run, start, take,
        until,
    },
};

/// The time at which the late acquire arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After the response timeout of the client.
    Past,
    /// Before the response timeout: the client has lost its connection.
    Before,
}

const BOTH: [When; 2] = [When::Past, When::Before];

impl When {
    /// Returns the response timeout of the client.
    const fn timeout(self) -> Duration {
        match self {
            Self::Past => millis(300),
            Self::Before => Duration::from_secs(8),
        }
    }

    fn option(self) -> String {
        format!("?dlock.response_timeout={}ms", self.timeout().as_millis())
    }
}

/// Holds back the request that is sent meanwhile, and makes the client continue on another
/// connection.
async fn lose(proxy: &Proxy, when: When, asked: impl Future) -> Verdict {
    proxy.strand();
    let before = proxy.request_bytes();
    let loses = async {
        until("it is on its way", async || Ok(proxy.request_bytes() > before)).await?;
        if when == When::Before {
            proxy.abandon();
        }
        Ok(())
    };
    let (_, lost) = tokio::join!(asked, loses);
    lost
}

/// Returns the number of acquires of this claim that the server has run. They contain the lease,
/// which is a millisecond longer for the server, or they are plain commands. Releases
/// contain neither.
async fn acquires(recording: &mut Recording, claim: ClaimId) -> Result<usize, Stop> {
    let lease = (LEASE + millis(1)).as_millis().to_string();
    let sent = recording.about(&claim.to_string()).await?;
    let acquires = |command: &&Vec<String>| command.contains(&lease) || command[0] == "SET";
    Ok(sent.iter().filter(acquires).count())
}

/// Lets the requests that were held back arrive, and waits until the server has run one more
/// acquire of this claim.
async fn arrive(
    proxies: &[&Proxy],
    recordings: &mut [Recording],
    when: When,
    claim: ClaimId,
) -> Verdict {
    if when == When::Past {
        sleep(when.timeout() * 2).await;
    }
    let mut before = Vec::new();
    for recording in recordings.iter_mut() {
        before.push(acquires(recording, claim).await?);
    }
    proxies.iter().for_each(|proxy| proxy.arrive());
    for (recording, before) in recordings.iter_mut().zip(before) {
        until("it arrives", async || Ok(acquires(recording, claim).await? > before)).await?;
    }
    Ok(())
}

/// Checks that these names have no holder and no waiter: at once if the late request was refused,
/// and otherwise soon, long before a lease ends. Plain commands are not refused within the lease.
async fn is_free(server: &RedisServer, when: When, keys: &str) -> Verdict {
    let held = async || -> Result<usize, Stop> {
        let script = "local n=0 for _,k in ipairs(redis.call('KEYS',ARGV[1])) do \
                      if not string.find(k,'}t$') then n=n+1 end end return n";
        let count = server.command(&["EVAL", script, "0", keys]).await?.int()?;
        Ok(usize::try_from(count)?)
    };
    if when == When::Past {
        assert_eq!(held().await?, 0, "it had an effect");
    }
    until("nothing is left", async || Ok(held().await? == 0)).await
}

/// The late acquire, another one with the same claim over a new connection, and its release.
async fn leaves_nothing(option: &str, keys: &str, mode: Mode, when: When) -> Verdict {
    let server = start().await?;
    let (proxy, one) = behind(&server, &(when.option() + option)).await?;
    let mut recording = [Recording::start(&server).await?];
    let request = ask("a", mode);
    lose(&proxy, when, one.acquire(&request)).await?;
    until("it goes on", async || Ok(one.inspect(&request.name).await.is_ok())).await?;
    take(&one, &request).await?;
    free(&one, &request).await?;
    arrive(&[&proxy], &mut recording, when, request.claim).await?;
    let is_plain = mode == Mode::Exclusive && option.is_empty();
    is_free(&server, if is_plain { When::Before } else { when }, keys).await
}

#[test]
fn a_late_acquire_takes_no_lock() {
    run(async {
        for when in BOTH {
            leaves_nothing("", "dlock:*", Mode::Exclusive, when).await?;
        }
        Ok(())
    });
}

#[test]
fn a_late_shared_or_permit_acquire_leaves_nothing() {
    run(async {
        for when in BOTH {
            leaves_nothing("", "dlock:*", Mode::Shared, when).await?;
            leaves_nothing("", "dlock:*", Mode::permits(2, 3)?, when).await?;
        }
        Ok(())
    });
}

#[test]
fn a_late_acquire_of_the_plain_form_takes_no_lock() {
    run(async {
        for when in BOTH {
            leaves_nothing("&dlock.plain=true", "a", Mode::Exclusive, when).await?;
        }
        Ok(())
    });
}

/// The claim was queued, and is cancelled over a new connection.
#[test]
fn a_late_acquire_does_not_join_the_queue() {
    run(async {
        for when in BOTH {
            let server = start().await?;
            let (proxy, one) = behind(&server, &when.option()).await?;
            let two = connect(&server.url()).await?;
            let mut recording = [Recording::start(&server).await?];
            let (held, waits) = (exclusive("a"), exclusive("a"));
            take(&two, &held).await?;
            lose(&proxy, when, one.acquire(&waits)).await?;
            until("it goes on", async || Ok(one.inspect(&waits.name).await.is_ok())).await?;
            queue(&one, &waits).await?;
            one.release(&waits.as_claim()).await?;
            arrive(&[&proxy], &mut recording, when, waits.claim).await?;
            let waiting = async || Ok::<_, Stop>(two.inspect(&held.name).await?.waiters.len());
            if when == When::Past {
                assert_eq!(waiting().await?, 0);
            }
            // The release would hand the lock off to the late claim.
            free(&two, &held).await?;
            is_free(&server, when, "dlock:*").await?;
        }
        Ok(())
    });
}

/// The caller gives up while its acquire is under way, and the claim is cancelled on another connection.
#[test]
fn a_dropped_acquire_that_arrives_late_takes_no_lock() {
    run(async {
        let when = When::Before;
        let server = start().await?;
        let (proxy, one) = behind(&server, &when.option()).await?;
        let mut recording = [Recording::start(&server).await?];
        let request = exclusive("a");
        lose(&proxy, when, tokio::time::timeout(millis(200), one.acquire(&request))).await?;
        one.release(&request.as_claim()).await?;
        arrive(&[&proxy], &mut recording, when, request.claim).await?;
        is_free(&server, when, "dlock:*").await
    });
}

/// The lock was busy at the retry, so there is no release.
#[test]
fn a_late_try_lock_takes_no_lock() {
    run(async {
        for (option, keys) in [("", "dlock:*"), ("&dlock.plain=true", "a")] {
            let when = When::Before;
            let server = start().await?;
            let (proxy, one) = behind(&server, &(when.option() + option)).await?;
            let two = connect(&format!("{}?{}", server.url(), option.trim_matches('&'))).await?;
            let mut recording = [Recording::start(&server).await?];
            let (held, tries) = (exclusive("a"), attempt("a"));
            take(&two, &held).await?;
            lose(&proxy, when, async {
                assert_eq!(one.acquire(&tries).await.unwrap(), Acquired::Busy);
            })
            .await?;
            free(&two, &held).await?;
            arrive(&[&proxy], &mut recording, when, tries.claim).await?;
            is_free(&server, when, keys).await?;
        }
        Ok(())
    });
}

#[test]
fn a_late_acquire_of_several_locks_takes_none() {
    run(async {
        for when in BOTH {
            let server = start().await?;
            let (proxy, one) = behind(&server, &when.option()).await?;
            let mut recording = [Recording::start(&server).await?];
            let requests = [exclusive("a"), exclusive("b")];
            let asked = async || match one.acquire_all(&requests) {
                Some(answer) => Ok(answer.await?),
                None => Err(Stop::failed("it can't take several")),
            };
            lose(&proxy, when, asked()).await?;
            until("it goes on", async || Ok(one.inspect(&requests[0].name).await.is_ok())).await?;
            let taken = asked().await?;
            assert!(taken.iter().all(|taken| matches!(taken, Acquired::Granted(_))), "{taken:?}");
            for request in &requests {
                free(&one, request).await?;
            }
            arrive(&[&proxy], &mut recording, when, requests[1].claim).await?;
            is_free(&server, when, "dlock:*").await?;
        }
        Ok(())
    });
}

#[test]
fn late_acquires_do_not_count_as_votes_of_a_quorum() {
    run(async {
        for when in BOTH {
            let masters = RedisMasters::start(3, &Options::new()).await?;
            let (mut proxies, mut recordings) = (Vec::new(), Vec::new());
            for server in masters.servers() {
                proxies.push(Proxy::start(&server.address()).await?);
                recordings.push(Recording::start(server).await?);
            }
            let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
            let url = format!("redis+quorum://{}{}", addresses.join(","), when.option());
            let one = connect(&format!("{url}&dlock.restart_guard=0s")).await?;
            let request = exclusive("a").with_queue(Queue::FailIfBusy);
            for proxy in &proxies[1..] {
                proxy.strand();
            }
            let loses = async {
                let before: Vec<_> = proxies.iter().map(Proxy::request_bytes).collect();
                until("they are on their way", async || {
                    Ok(proxies.iter().zip(&before).all(|(p, b)| p.request_bytes() > *b))
                })
                .await?;
                // In both cases, so that no release follows the acquires on their connections.
                proxies.iter().for_each(Proxy::abandon);
                Ok::<_, Stop>(())
            };
            let (_, lost) = tokio::join!(lose(&proxies[0], when, one.acquire(&request)), loses);
            lost?;
            // Repeated until a majority is connected again.
            until("it is given up", async || Ok(one.release(&request.as_claim()).await.is_ok()))
                .await?;
            let through: Vec<_> = proxies.iter().collect();
            arrive(&through, &mut recordings, when, request.claim).await?;
            for server in masters.servers() {
                is_free(server, when, "dlock:*").await?;
            }
        }
        Ok(())
    });
}

/// A renewal that was sent before the last renewal of its claim may arrive after it. It neither
/// shortens the lease nor extends it.
#[test]
fn a_late_renewal_does_not_change_the_last_lease() {
    run(async {
        let (short, long) = (Duration::from_secs(6), Duration::from_secs(60));
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 3)?] {
            let request = exclusive("a").with_mode(mode);
            let left = after_a_late_renewal("", &request, short, long).await?;
            assert!(left > short * 2, "{mode:?}: {left:?}");
            let left = after_a_late_renewal("", &request, long, short).await?;
            assert!(left <= short + millis(1), "{mode:?}: {left:?}");
        }
        // A value of the plain form has no room for a mark, so an earlier renewal may extend it.
        let left = after_a_late_renewal("&dlock.plain=true", &exclusive("a"), short, long).await?;
        assert!(left > short * 2, "{left:?}");
        Ok(())
    });
}

/// Returns the rest of a lease after the last renewal, once an earlier one has arrived as well.
async fn after_a_late_renewal(
    options: &str,
    request: &AcquireRequest,
    late: Duration,
    last: Duration,
) -> Result<Duration, Stop> {
    let server = RedisServer::start(&Options::new()).await?;
    let (mut recording, proxy) =
        (Recording::start(&server).await?, Proxy::start(&server.address()).await?);
    let url = |address| format!("redis://{address}{}{options}", When::Before.option());
    let (one, other) =
        (connect(&url(proxy.address())).await?, connect(&url(server.address())).await?);
    take(&one, request).await?;
    let renewal = |lease| [Renewal::new(request.as_claim(), request.mode, lease)];
    // From then on, the server has the scripts in its cache.
    one.renew(&renewal(LEASE)).await?;
    lose(&proxy, When::Before, one.renew(&renewal(late))).await?;
    let set = renewal(last).map(Renewal::as_last);
    until("it goes on", async || {
        Ok(one.renew(&set).await.is_ok_and(|answers| answers == [Renewed::Kept]))
    })
    .await?;
    let before = recording.with(&request.claim.to_string()).await?.len();
    proxy.arrive();
    until("it arrives", async || {
        Ok(recording.with(&request.claim.to_string()).await?.len() > before)
    })
    .await?;
    let state = other.inspect(&request.name).await?;
    let holder = state.holders.first().ok_or_else(|| Stop::failed("nobody holds it"))?;
    Ok(holder.remaining)
}

/// An acquire that was sent again arrives when the claim has a longer lease than it requests.
#[test]
fn a_late_acquire_does_not_shorten_the_lease() {
    run(async {
        for options in ["", "&dlock.plain=true"] {
            let server = RedisServer::start(&Options::new()).await?;
            let mut recording = Recording::start(&server).await?;
            let proxy = Proxy::start(&server.address()).await?;
            let url = format!("redis://{}{}{options}", proxy.address(), When::Before.option());
            let one = connect(&url).await?;
            let [first, request] = [exclusive("first"), exclusive("a")];
            take(&one, &first).await?;
            lose(&proxy, When::Before, one.acquire(&request)).await?;
            take(&one, &request).await?;
            let renewal = Renewal::new(request.as_claim(), request.mode, LEASE * 9);
            assert_eq!(one.renew(&[renewal.as_last()]).await?, [Renewed::Kept]);
            arrive(&[&proxy], std::slice::from_mut(&mut recording), When::Before, request.claim)
                .await?;
            let state = one.inspect(&request.name).await?;
            assert!(state.holders.iter().any(|holder| holder.remaining > LEASE * 2), "{state:?}");
        }
        Ok(())
    });
}

/// A client learns the server's time from a refusal, and retries.
#[test]
fn a_server_grants_locks_after_a_clock_step() {
    run(async {
        let clock = SteppedClock::start().await?;
        let server = RedisServer::start(&Options::new().with_clock(&clock)).await?;
        let client: DynBackend = connect(&server.url()).await?;
        let mut recording = Recording::start(&server).await?;
        // From then on, the server has the scripts in its cache.
        for mode in [Mode::Exclusive, Mode::Shared] {
            let first = ask("a", mode);
            take(&client, &first).await?;
            free(&client, &first).await?;
        }
        let mut sendings = Vec::new();
        for (forward, back) in [(0, 0), (3600, 0), (0, 0), (0, 3600), (0, 0)] {
            clock.forward(Duration::from_secs(forward))?;
            clock.back(Duration::from_secs(back))?;
            let request = exclusive("a");
            take(&client, &request).await?;
            sendings.push(recording.about(&request.claim.to_string()).await?.len());
            free(&client, &request).await?;
        }
        // The plain commands of the second one come too late, and its script as well. Then scripts are
        // sent at once for a while.
        assert_eq!(sendings, [1, 3, 1, 1, 1]);
        Ok(())
    });
}
