//! Tokens at the limit of exact numbers: each is larger than the last, or the acquire is refused.

use dlock_core::{
    AcquireRequest, Acquired, ConfigIssue, DynBackend, Error, ErrorKind, FencingToken, LockState,
    Mode, Released, Renewed,
};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};

use crate::support::{
    SOON, ask, attempt, connect, exclusive, free, keys, name, queue, renew, run, says, start, take,
    until,
};

const SPENT: ErrorKind = ErrorKind::Config(ConfigIssue::Token);
/// The largest number below which all are exact, and so the largest token.
const MOST: u64 = (1 << 53) - 1;

/// Sets the last token of the name on the server.
async fn set_last(server: &RedisServer, lock: &str, digits: &str) -> Verdict {
    server.command(&["SET", &keys(lock)[1], digits, "PX", "600000"]).await?.ok().map(|_| ())
}

async fn last(server: &RedisServer, lock: &str) -> Result<String, Stop> {
    server.command(&["GET", &keys(lock)[1]]).await?.text()
}

fn is_spent(error: &Error) {
    says(error, SPENT, "exactly");
    assert!(!error.is_transient(), "{error:?}");
}

/// Acquires and releases until no token is left. Returns the last token.
async fn use_up(client: &DynBackend, request: &AcquireRequest, from: u64) -> Result<u64, Stop> {
    let mut last = from;
    for _ in 0..600 {
        let request = request.clone().with_claim(dlock_core::ClaimId::random());
        match client.acquire(&request).await {
            Ok(Acquired::Granted(grant)) => {
                assert!(grant.token.get() > last, "{} after {last}", grant.token);
                last = grant.token.get();
                free(client, &request).await?;
            }
            Ok(other) => return Err(Stop::failed(format!("{other:?}"))),
            Err(error) => {
                is_spent(&error);
                return Ok(last);
            }
        }
    }
    Err(Stop::failed(format!("tokens do not end at {last}")))
}

#[test]
fn tokens_grow_up_to_the_largest_exact_number() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for (mode, tokens) in [
            (Mode::Exclusive, 1),
            (Mode::Exclusive, 7),
            (Mode::Shared, 1),
            (Mode::permits(2, 3)?, 1),
        ] {
            let request = ask("a", mode).with_tokens(tokens);
            for from in [MOST - 300, MOST - 9, MOST - 1] {
                set_last(&server, "a", &from.to_string()).await?;
                let last = use_up(&client, &request, from).await?;
                let end = last + u64::from(tokens) - 1;
                assert!(last == from || end <= MOST, "{end}");
                assert!(tokens > 1 || last == MOST, "{last} of {MOST}, {mode:?}");
                server.command(&["DEL", &keys("a")[1]]).await?.ok()?;
            }
        }
        Ok(())
    });
}

#[test]
fn an_inexact_last_token_is_refused_and_stays_unchanged() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for digits in [
            "9007199254740991",
            "9007199254740992",
            "9007199254741993",
            "4611686018427387904",
            "9223372036854775807",
            "99999999999999999999999",
        ] {
            set_last(&server, "a", digits).await?;
            for request in [
                exclusive("a"),
                attempt("a"),
                ask("a", Mode::Shared),
                ask("a", Mode::permits(1, 2)?),
            ] {
                is_spent(&client.acquire(&request).await.err().ok_or("granted")?);
                assert_eq!(client.release(&request.as_claim()).await?, Released::AlreadyLost);
            }
            if let Some(both) = client.acquire_all(&[exclusive("a"), exclusive("b")]) {
                is_spent(&both.await.err().ok_or("granted")?);
            }
            let floor = client.raise_tokens(&name("a"), FencingToken::new(7)?).await;
            is_spent(&floor.err().ok_or("raised")?);
            assert_eq!(last(&server, "a").await?, digits);
            let state: LockState = client.inspect(&name("a")).await?;
            let seen = state.last_token.ok_or("it shows none")?;
            let expected = digits.parse().unwrap_or(u64::MAX).min(FencingToken::MAX.get());
            assert_eq!((state.is_free(), seen.get()), (true, expected));
        }
        Ok(())
    });
}

#[test]
fn a_held_lock_is_renewed_and_released_without_tokens() {
    run(async {
        let server = start().await?;
        let (client, other) = (connect(&server.url()).await?, connect(&server.url()).await?);
        for mode in [Mode::Exclusive, Mode::Shared] {
            for tokens in [1, 5] {
                let held = ask("a", mode).with_tokens(tokens);
                let had = take(&client, &held).await?;
                // The flag announces shared holders.
                let digits = "9007199254741993";
                let flag = if mode == Mode::Exclusive { "" } else { "q" };
                set_last(&server, "a", &format!("{digits}{flag}")).await?;
                assert_eq!(renew(&client, std::slice::from_ref(&held)).await?, [Renewed::Kept]);
                assert_eq!(take(&client, &held).await?, had);
                is_spent(&other.acquire(&exclusive("a")).await.err().ok_or("it waits")?);
                free(&client, &held).await?;
                assert_eq!(last(&server, "a").await?.trim_end_matches('q'), digits);
                is_spent(&other.acquire(&exclusive("a")).await.err().ok_or("granted")?);
                server.command(&["FLUSHALL"]).await?.ok()?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_waiter_gets_an_error_if_no_token_is_left() {
    run(async {
        let server = start().await?;
        let (client, other) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        set_last(&server, "a", "9007199254740992q").await?;
        free(&client, &held).await?;
        // There is no message; it polls.
        let answer = tokio::time::timeout(SOON, other.granted(&waiting)).await?;
        is_spent(&answer.err().ok_or("granted")?);
        other.release(&waiting.as_claim()).await?;
        assert!(client.inspect(&name("a")).await?.is_free());
        // Another name has its own tokens.
        let elsewhere = exclusive("b");
        take(&client, &elsewhere).await?;
        free(&client, &elsewhere).await
    });
}

#[test]
fn a_quorum_without_a_token_reports_it() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let client = connect(&format!("{}?dlock.restart_guard=0s", masters.url())).await?;
        let works = async || {
            let request = attempt("a");
            let token = take(&client, &request).await?;
            free(&client, &request).await?;
            Ok::<_, Stop>(token)
        };
        works().await?;
        // A minority without tokens blocks no grant.
        set_last(&masters.servers()[0], "a", "9007199254741993").await?;
        until("it is granted by the others", async || Ok(works().await.is_ok())).await?;
        set_last(&masters.servers()[1], "a", &MOST.to_string()).await?;
        is_spent(&client.acquire(&attempt("a")).await.err().ok_or("granted")?);
        Ok(())
    });
}
