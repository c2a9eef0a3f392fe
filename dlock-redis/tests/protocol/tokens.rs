//! Tokens rise from grant to grant, also where a client takes a lock again without a script.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired};
use dlock_testlab::{Flow, Stop, Verdict};
use tokio::time::Instant;

use crate::support::{
    behind, connect, exclusive, free, granted, keys, mend, millis, run, start, take, until,
};

const WHILE: Duration = Duration::from_secs(3);
/// How many tokens a client reserves for its next acquires, so many microseconds of the clock.
const RESERVE: u64 = 256;

#[track_caller]
fn rises(last: &mut u64, token: u64) {
    assert!(token > *last, "{token} after {last}");
    *last = token;
}

/// A timer does not wake within microseconds.
async fn hold(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

/// One client takes the lock and another waits for it, granted at about the time by the server's
/// clock that is the end of the first client's reserve. That must not look like the reserve.
#[test]
fn a_token_out_of_the_reserve_is_never_given_twice() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let (began, mut last, mut round) = (Instant::now(), 0, 0_u64);
        let mut pause = Duration::ZERO;
        while began.elapsed() < WHILE {
            let (first, waiting, again) = (exclusive("a"), exclusive("a"), exclusive("a"));
            let from = take(&one, &first).await?;
            rises(&mut last, from);
            let releases = async {
                hold(pause).await;
                free(&one, &first).await
            };
            let (answer, released) = tokio::join!(two.acquire(&waiting), releases);
            released?;
            let (grant, waited) = match answer? {
                Acquired::Granted(grant) => (grant, false),
                _ => (granted(&two, &waiting).await?, true),
            };
            let to = grant.token.get();
            rises(&mut last, to);
            free(&two, &waiting).await?;
            rises(&mut last, take(&one, &again).await?);
            free(&one, &again).await?;
            // Steers towards the end of the reserve, whatever this machine takes for a round trip.
            round += 1;
            let step = Duration::from_micros(3 + round % 11);
            let late = waited && to > from + RESERVE + 1;
            pause = if late { pause.saturating_sub(step) } else { pause + step };
        }
        Ok(())
    });
}

/// The answers to an acquire are lost, after the server has done the first half of it.
async fn its_answers_are_lost(at_once: bool) -> Verdict {
    let server = start().await?;
    let patience = if at_once { "" } else { "?dlock.response_timeout=300ms" };
    let (proxy, one) = behind(&server, patience).await?;
    let two = connect(&server.url()).await?;
    let turn = async |client, request: &AcquireRequest| -> Result<u64, Stop> {
        let token = take(client, request).await?;
        free(client, request).await?;
        Ok(token)
    };
    let mut last = 0;
    for round in 0..5 {
        rises(&mut last, turn(&one, &exclusive("a")).await?);
        if round % 2 == 1 {
            rises(&mut last, turn(&one, &exclusive("a")).await?);
        }
        rises(&mut last, turn(&two, &exclusive("a")).await?);

        let request = exclusive("a");
        proxy.replies(Flow::Drop);
        let taken = async || Ok(server.command(&["EXISTS", &keys("a")[0]]).await?.int()? == 1);
        match at_once {
            true => {
                let heals = async {
                    until("it has arrived", taken).await?;
                    mend(&proxy).await
                };
                let (token, healed) = tokio::join!(take(&one, &request), heals);
                healed?;
                rises(&mut last, token?);
            }
            false => {
                // The second half, by script, does not arrive any more.
                let breaks = async {
                    until("it has arrived", taken).await?;
                    proxy.requests(Flow::Drop);
                    Ok::<_, Stop>(())
                };
                let (answer, broken) = tokio::join!(one.acquire(&request), breaks);
                broken?;
                assert!(answer.is_err(), "{answer:?}");
                mend(&proxy).await?;
                until("it is connected", async || Ok(one.inspect(&request.name).await.is_ok()))
                    .await?;
                rises(&mut last, take(&one, &request).await?);
            }
        }
        free(&one, &request).await?;
        rises(&mut last, turn(&two, &exclusive("a")).await?);
        tokio::time::sleep(millis(1)).await;
    }
    Ok(())
}

#[test]
fn an_acquire_whose_answer_is_lost_and_that_is_sent_again_has_a_token_above_all_others() {
    run(its_answers_are_lost(true));
}

#[test]
fn an_acquire_that_failed_and_that_is_asked_for_again_has_a_token_above_all_others() {
    run(its_answers_are_lost(false));
}
