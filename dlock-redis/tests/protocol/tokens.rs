//! Tokens grow from grant to grant, with lost answers, too.

use dlock_core::AcquireRequest;
use dlock_testlab::{Flow, Stop, Verdict};

use crate::support::{
    behind, connect, exclusive, free, keys, mend, millis, run, start, take, until,
};

#[track_caller]
fn rises(last: &mut u64, token: u64) {
    assert!(token > *last, "{token} after {last}");
    *last = token;
}

/// The answers to an acquire are lost, after the server has done the first half of it.
async fn its_answers_are_lost(at_once: bool) -> Verdict {
    let server = start().await?;
    let timeout = if at_once { "" } else { "?dlock.response_timeout=1s" };
    let (proxy, one) = behind(&server, timeout).await?;
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
fn a_resent_acquire_with_a_lost_reply_has_the_largest_token() {
    run(its_answers_are_lost(true));
}

#[test]
fn a_failed_acquire_that_is_retried_has_the_largest_token() {
    run(its_answers_are_lost(false));
}
