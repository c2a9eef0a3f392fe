//! Locks that are taken by three plain commands, and when a script has to decide.

use std::time::Duration;

use dlock_core::{FencingToken, Mode, Queue, Renewal, Renewed};
use dlock_testlab::{
    SteppedClock, Stop,
    redis::{Options, RedisServer},
};
use tokio::time::sleep;

use crate::{
    replay::Recording,
    support::{
        SOON, ask, attempt, brief, connect, exclusive, free, granted, keys, millis, queue, renew,
        run, start, take, until,
    },
};

/// Returns the names of the recorded commands that contain this word.
async fn sent(recording: &mut Recording, word: &str) -> Result<Vec<String>, Stop> {
    let sent = recording.with(word).await?;
    Ok(sent.into_iter().map(|mut command| command.swap_remove(0)).collect())
}

async fn holder(server: &RedisServer) -> Result<String, Stop> {
    server.command(&["GET", &keys("a")[0]]).await?.text()
}

/// Takes the lock with a late `SET` of this claim.
async fn late_set(server: &RedisServer, claim: &str) -> Result<(), Stop> {
    let time = server.command(&["TIME"]).await?.texts()?;
    let ends = (time[0].parse::<u64>()? + 60).to_string() + "000";
    let key = &keys("a")[0];
    let record = format!("{claim}:~0123456789abcdef");
    server.command(&["SET", key, &record, "NX", "GET", "PXAT", &ends]).await?.ok()?;
    assert_eq!(holder(server).await?, record);
    Ok(())
}

#[test]
fn a_free_lock_is_taken_without_a_script() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let mut recording = Recording::start(&server).await?;
        let held = exclusive("a");
        let token = take(&client, &held).await?;
        assert_eq!(sent(&mut recording, &keys("a")[0]).await?, ["SET"]);
        assert_eq!(sent(&mut recording, &keys("a")[1]).await?, ["XADD"]);
        assert_eq!(sent(&mut recording, &keys("a")[2]).await?, ["EXISTS"]);
        let state = client.inspect(&held.name).await?;
        assert_eq!(state.holders[0].token.map(FencingToken::get), Some(token));
        // The key lives for the lease, as the client knows the clock.
        let left = server.command(&["PTTL", &keys("a")[0]]).await?.int()?;
        let lease = i64::try_from(held.lease.as_millis())?;
        assert!((lease / 2..=lease * 9 / 8).contains(&left), "{left} of {lease} ms");
        // The first renewal adds the token.
        assert!(holder(&server).await?.starts_with(&format!("{}:~", held.claim)));
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
        let renewal = renewal.with_token(FencingToken::new(token)?);
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
        assert_eq!(holder(&server).await?, format!("{}:{token}", held.claim));
        free(&client, &held).await
    });
}

#[test]
fn a_busy_lock_is_refused_without_a_script() {
    run(async {
        let server = start().await?;
        let [one, two] = [connect(&server.url()).await?, connect(&server.url()).await?];
        let held = exclusive("a");
        take(&one, &held).await?;
        let mut recording = Recording::start(&server).await?;
        let tries = attempt("a");
        assert_eq!(two.acquire(&tries).await?, dlock_core::Acquired::Busy);
        let all = sent(&mut recording, &keys("a")[0]).await?;
        assert_eq!(all, ["SET"]);
        // From the first waiter on, the script is sent at once.
        for commands in [&["SET", "EVALSHA"][..], &["EVALSHA"]] {
            let mut recording = Recording::start(&server).await?;
            let waits = exclusive("a");
            queue(&two, &waits).await?;
            let mut all = sent(&mut recording, &keys("a")[0]).await?;
            // The text follows the digest once.
            all.retain(|name| name != "EVAL");
            assert_eq!(all, commands);
            free(&two, &waits).await?;
        }
        free(&one, &held).await
    });
}

/// The holder has died, and a waiter or a reader that is still there has not asked since.
#[test]
fn a_claim_does_not_bypass_waiters_and_readers() {
    run(async {
        let server = start().await?;
        let [one, two] = [connect(&server.url()).await?, connect(&server.url()).await?];
        for mode in [Mode::Exclusive, Mode::Shared] {
            let dead = brief("a", millis(150));
            take(&one, &dead).await?;
            let first = ask("a", mode);
            queue(&one, &first).await?;
            server.command(&["DEL", &keys("a")[0]]).await?.ok()?;
            let second = exclusive("a");
            queue(&two, &second).await?;
            assert_eq!(one.inspect(&first.name).await?.holders[0].claim, first.claim, "{mode:?}");
            free(&one, &first).await?;
            granted(&two, &second).await?;
            free(&two, &second).await?;
        }
        // A reader holds the lock, and no claim has waited for it.
        let reader = ask("b", Mode::Shared);
        take(&one, &reader).await?;
        let tries = exclusive("b").with_queue(Queue::FailIfBusy);
        assert!(
            two.acquire(&tries).await.is_err()
                || two.inspect(&tries.name).await?.holders.len() == 1
        );
        assert_eq!(two.inspect(&tries.name).await?.holders[0].claim, reader.claim);
        let holder = server.command(&["EXISTS", &keys("b")[0]]).await?.int()?;
        assert_eq!(holder, 0, "the key that SET has written is deleted");
        free(&one, &reader).await
    });
}

#[test]
fn a_late_set_of_a_waiter_does_not_bypass_others() {
    run(async {
        let server = start().await?;
        let [one, two] = [connect(&server.url()).await?, connect(&server.url()).await?];
        let (dead, first, late) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&one, &dead).await?;
        queue(&one, &first).await?;
        queue(&two, &late).await?;
        server.command(&["DEL", &keys("a")[0]]).await?.ok()?;
        late_set(&server, &late.claim.to_string()).await?;
        // The poll of either waiter shows it.
        granted(&one, &first).await?;
        assert_eq!(one.inspect(&late.name).await?.waiters[0].claim, late.claim);
        free(&one, &first).await?;
        granted(&two, &late).await?;
        free(&two, &late).await
    });
}

/// The client has given up the plain commands, and asks again, with or without knowing of them.
#[test]
fn a_claim_that_is_sent_again_does_not_bypass_waiters() {
    run(async {
        let server = start().await?;
        let [one, two] = [connect(&server.url()).await?, connect(&server.url()).await?];
        let (dead, first, again) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&one, &dead).await?;
        queue(&one, &first).await?;
        server.command(&["DEL", &keys("a")[0]]).await?.ok()?;
        late_set(&server, &again.claim.to_string()).await?;
        server.command(&["XADD", &keys("a")[1], "*", "c", "0123456789abcdef"]).await?.ok()?;
        queue(&two, &again).await?;
        granted(&one, &first).await?;
        free(&one, &first).await?;
        granted(&two, &again).await?;
        free(&two, &again).await
    });
}

/// The sequence of the id was too large for a token, and the client asks again.
#[test]
fn a_claim_that_is_sent_again_gets_a_token_of_its_own() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let time = server.command(&["TIME"]).await?.texts()?;
        let millis = (time[0].parse::<u64>()? + 3600) * 1000;
        for (sequence, number) in [(999, ""), (1000, "0123456789abcdef")] {
            let id = format!("{millis}-{sequence}");
            server.command(&["XADD", &keys("a")[1], &id, "c", number]).await?.ok()?;
        }
        let again = exclusive("a");
        late_set(&server, &again.claim.to_string()).await?;
        let token = take(&client, &again).await?;
        assert!(token > millis * 1000 + 999, "{token}");
        free(&client, &again).await
    });
}

#[test]
fn a_release_removes_a_waiter_whose_late_set_holds_the_key() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let (dead, late, next) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&client, &dead).await?;
        queue(&client, &late).await?;
        queue(&client, &next).await?;
        server.command(&["DEL", &keys("a")[0]]).await?.ok()?;
        late_set(&server, &late.claim.to_string()).await?;
        client.release(&late.as_claim()).await?;
        granted(&client, &next).await?;
        let state = client.inspect(&next.name).await?;
        assert!(state.waiters.is_empty() && state.holders[0].claim == next.claim, "{state:?}");
        free(&client, &next).await
    });
}

/// The server has lost the grant of a script, and a late `SET` of the same claim has arrived.
#[test]
fn a_renewal_does_not_confirm_the_key_of_a_late_set() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let (before, held) = (exclusive("a"), exclusive("a"));
        take(&client, &before).await?;
        queue(&client, &held).await?;
        free(&client, &before).await?;
        granted(&client, &held).await?;
        let state = client.inspect(&held.name).await?;
        server.command(&["DEL", &keys("a")[0]]).await?.ok()?;
        late_set(&server, &held.claim.to_string()).await?;
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
        let renewal = renewal.with_token(state.holders[0].token);
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
        client.release(&held.as_claim()).await?;
        assert!(client.inspect(&held.name).await?.is_free());
        Ok(())
    });
}

#[test]
fn tokens_ahead_of_the_clock_are_left_to_scripts() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let time = server.command(&["TIME"]).await?.texts()?;
        let ahead = (time[0].parse::<u64>()? + 3600) * 1_000_000;
        client.raise_tokens(&exclusive("a").name, FencingToken::new(ahead)?).await?;
        let mut last = ahead;
        for turn in 0..3 {
            let mut recording = Recording::start(&server).await?;
            let held = exclusive("a");
            let token = take(&client, &held).await?;
            assert!(token > last, "{token} after {last}");
            last = token;
            let sent = sent(&mut recording, &keys("a")[0]).await?;
            assert_eq!(sent.contains(&"SET".to_owned()), turn == 0, "turn {turn}: {sent:?}");
            free(&client, &held).await?;
        }
        Ok(())
    });
}

#[test]
fn sequences_that_are_too_large_are_left_to_scripts() {
    run(async {
        let server = start().await?;
        let [one, two] = [connect(&server.url()).await?, connect(&server.url()).await?];
        let held = exclusive("a");
        let mut last = take(&one, &held).await?;
        free(&one, &held).await?;
        for _ in 0..5 {
            // The clock is far behind, so plain commands only count up.
            let id = format!("{}-998", (last / 1_000_000 + 60) * 1000);
            server.command(&["XADD", &keys("a")[1], &id, "c", ""]).await?.ok()?;
            for client in [&one, &two, &one] {
                let held = exclusive("a");
                let token = take(client, &held).await?;
                assert!(token > last, "{token} after {last}");
                last = token;
                free(client, &held).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_step_of_the_clock_does_not_end_a_lock_unnoticed() {
    run(async {
        let clock = SteppedClock::start().await?;
        let server = RedisServer::start(&Options::new().with_clock(&clock)).await?;
        let client = connect(&server.url()).await?;
        let used = exclusive("a");
        take(&client, &used).await?;
        free(&client, &used).await?;
        for step in ["forward", "back"] {
            let by = Duration::from_secs(3600);
            if step == "back" { clock.back(2 * by) } else { clock.forward(by) }?;
            let held = exclusive("a").with_lease(SOON);
            take(&client, &held).await?;
            let left = server.command(&["PTTL", &keys("a")[0]]).await?.int()?;
            let lease = i64::try_from(held.lease.as_millis())?;
            assert!(left > lease / 2, "{left} ms after a step {step}");
            assert_eq!(renew(&client, std::slice::from_ref(&held)).await?, [Renewed::Kept]);
            free(&client, &held).await?;
            sleep(millis(1)).await;
        }
        Ok(())
    });
}

/// A block of tokens is not in the stream, and still nobody gets its used tokens again.
#[test]
fn a_block_does_not_move_tokens_ahead_of_the_clock() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let mut last = 0;
        for round in 0..200 {
            let held = exclusive("a").with_tokens(32_768);
            let first = take(&client, &held).await?;
            assert!(first > last, "{first} after {last}");
            let used = if round % 2 == 0 { 7 } else { 1 };
            last = first + u64::from(used) - 1;
            client.release(&held.as_claim().with_used(used)).await?;
            let single = exclusive("a");
            let token = take(&client, &single).await?;
            assert!(token > last, "{token} after {last}");
            last = token;
            free(&client, &single).await?;
        }
        let time = server.command(&["TIME"]).await?.texts()?;
        let now = time[0].parse::<u64>()? * 1_000_000 + time[1].parse::<u64>()?;
        assert!(last <= now + 2000, "{last} at {now}");
        // Nobody knows how many of these tokens were used.
        let unknown = exclusive("a").with_tokens(32_768);
        let first = take(&client, &unknown).await?;
        client.release(&unknown.as_claim()).await?;
        let next = exclusive("a");
        assert!(take(&client, &next).await? > first + 32_767);
        free(&client, &next).await?;
        // The lease does not outlive the block, so the block is reserved.
        let short = brief("a", millis(5)).with_tokens(32_768);
        let first = take(&client, &short).await?;
        until("it has expired", async || Ok(client.inspect(&short.name).await?.is_free())).await?;
        let last = exclusive("a");
        assert!(take(&client, &last).await? > first + 32_767);
        free(&client, &last).await
    });
}

/// A writer has sent its plain commands, and not yet the script that takes its key back.
#[test]
fn the_key_of_a_writer_does_not_hide_readers() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let (one, two) = (ask("a", Mode::Shared), ask("a", Mode::Shared));
        take(&client, &one).await?;
        take(&client, &two).await?;
        let writer = exclusive("a");
        late_set(&server, &writer.claim.to_string()).await?;
        let both = [one.clone(), two.clone()];
        assert_eq!(renew(&client, &both).await?, [Renewed::Kept, Renewed::Kept]);
        free(&client, &one).await?;
        assert_eq!(renew(&client, &both[1..]).await?, [Renewed::Kept]);
        queue(&client, &writer).await?;
        free(&client, &two).await?;
        granted(&client, &writer).await?;
        free(&client, &writer).await
    });
}
