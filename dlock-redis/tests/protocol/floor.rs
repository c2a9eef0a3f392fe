//! The token floor, and what clients of the quiet path make of it.

use dlock_core::{Acquired, ConfigIssue, DynBackend, ErrorKind, FencingToken, Renewed};
use dlock_testlab::{Flow, Stop, redis::RedisServer};

use crate::support::{
    attempt, behind, connect, exclusive, free, granted, keys, mend, name, queue, renew, run, says,
    start, take, until,
};

const FAR: u64 = 1_000_000_000;

fn token(value: u64) -> Result<FencingToken, Stop> {
    Ok(FencingToken::new(value)?)
}

/// The mark of the claim that holds a lock.
async fn mark(server: &RedisServer, lock: &str) -> Result<String, Stop> {
    let holds = server.command(&["GET", &keys(lock)[0]]).await?.text()?;
    Ok(holds.chars().nth(32).map(String::from).unwrap_or_default())
}

/// Takes the lock and gives it back.
async fn turn(client: &DynBackend, lock: &str) -> Result<u64, Stop> {
    let request = exclusive(lock);
    let token = take(client, &request).await?;
    free(client, &request).await?;
    Ok(token)
}

#[test]
fn a_holder_of_the_quiet_path_keeps_the_lock_when_tokens_rise() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        // Where tokens are ahead of the clock, nobody is quiet.
        for (lock, waits) in [("a", false), ("b", true)] {
            turn(&one, lock).await?;
            let (held, waiting) = (exclusive(lock), exclusive(lock));
            let has = take(&one, &held).await?;
            assert_eq!(mark(&server, lock).await?, "?", "it was not taken quietly");
            if waits {
                queue(&two, &waiting).await?;
                assert_eq!(mark(&server, lock).await?, "&");
            }
            two.raise_tokens(&held.name, token(has + FAR)?).await?;
            assert_eq!(mark(&server, lock).await?, if waits { "!" } else { ":" });
            // Whoever asks finds the same hold.
            for client in [&one, &two] {
                assert_eq!(renew(client, std::slice::from_ref(&held)).await?, [Renewed::Kept]);
                assert_eq!(take(client, &held).await?, has);
            }
            assert_eq!(two.acquire(&attempt(lock)).await?, Acquired::Busy);
            free(&one, &held).await?;
            let next = match waits {
                true => granted(&two, &waiting).await?.token.get(),
                false => take(&two, &waiting).await?,
            };
            assert!(next > has + FAR, "{next} after {has}");
            free(&two, &waiting).await?;
        }
        Ok(())
    });
}

/// The lock was taken by a command whose answer nobody heard, and then tokens rise: the claim has
/// the lock by the token that it took, which is not above the floor, but was granted before it.
#[test]
fn a_claim_that_took_the_lock_unheard_is_proven_before_tokens_rise() {
    run(async {
        let server = start().await?;
        let (proxy, one) = behind(&server, "").await?;
        let two = connect(&server.url()).await?;
        turn(&one, "a").await?;
        let unheard = exclusive("a");
        proxy.replies(Flow::Drop);
        let taken = async || Ok(server.command(&["EXISTS", &keys("a")[0]]).await?.int()? == 1);
        let raises = async {
            until("it has arrived", taken).await?;
            let last = two.inspect(&name("a")).await?.last_token.ok_or("no token")?;
            two.raise_tokens(&name("a"), last.plus(FAR)).await?;
            mend(&proxy).await?;
            Ok::<_, Stop>(last)
        };
        let (has, last) = tokio::join!(take(&one, &unheard), raises);
        let (has, last) = (has?, last?);
        assert!(has <= last.get(), "{has} was granted anew, after {last}");
        free(&one, &unheard).await?;
        assert!(take(&two, &exclusive("a")).await? > last.get() + FAR);
        Ok(())
    });
}

#[test]
fn a_floor_that_scripts_can_not_count_to_is_refused() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let far = token(1 << 53)?;
        let error = client.raise_tokens(&name("a"), far).await.unwrap_err();
        says(&error, ErrorKind::Config(ConfigIssue::Token), "exactly");
        // Just below, tokens are still told apart.
        let near = token((1 << 53) - (1 << 40))?;
        client.raise_tokens(&name("a"), near).await?;
        let mut last = near.get();
        for _ in 0..3 {
            let request = exclusive("a");
            let token = take(&client, &request).await?;
            assert!(token > last, "{token} after {last}");
            last = token;
            free(&client, &request).await?;
        }
        Ok(())
    });
}
