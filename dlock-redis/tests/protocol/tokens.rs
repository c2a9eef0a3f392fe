//! Tokens grow from grant to grant: with lost answers, at the limit of exact numbers, when they are
//! raised, and for the readers of a quorum.

use dlock_core::{
    AcquireRequest, Acquired, ConfigIssue, DynBackend, Error, ErrorKind, FencingToken, LockState,
    Mode, Released, Renewed,
};
use dlock_testlab::{
    Flow, Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::{Duration, Instant};

use crate::{
    replay::{Recording, replay},
    support::{
        SOON, ask, attempt, behind, connect, exclusive, free, keys, mend, millis, name, queue,
        renew, run, says, start, take, until,
    },
};

#[track_caller]
fn rises(last: &mut u64, token: u64) {
    assert!(token > *last, "{token} after {last}");
    *last = token;
}

/// The answers to an acquire are lost, after the server has run the first of its two scripts.
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
                // The second script does not arrive.
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

const SPENT: ErrorKind = ErrorKind::Config(ConfigIssue::Token);
/// The largest number below which all are exact, and so the largest token.
const MOST: u64 = (1 << 53) - 1;

/// Sets the last token of the name on the server.
async fn set_last(server: &RedisServer, lock: &str, token: u64) -> Verdict {
    set_id(server, lock, &format!("{}-{}", token / 1000, token % 1000)).await
}

/// Sets the last id of the name's stream.
async fn set_id(server: &RedisServer, lock: &str, id: &str) -> Verdict {
    server.command(&["DEL", &keys(lock)[1]]).await?.ok()?;
    server.command(&["XADD", &keys(lock)[1], id, "c", ""]).await?.ok().map(|_| ())
}

/// Returns the id in the stream.
async fn last(server: &RedisServer, lock: &str) -> Result<(u64, u64), Stop> {
    let last = "return redis.call('XREVRANGE',KEYS[1],'+','-','COUNT',1)[1][1]";
    let id = server.command(&["EVAL", last, "1", &keys(lock)[1]]).await?.text()?;
    let (millis, sequence) = id.split_once('-').ok_or("an id")?;
    Ok((millis.parse()?, sequence.parse()?))
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
                set_last(&server, "a", from).await?;
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
fn an_inexact_last_token_is_refused() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for id in [
            "9007199254740-991",
            "9007199254740-992",
            "9007199254741-993",
            "9007199254740-5000",
            "4611686018427387-904",
            "18446744073709551615-0",
            "18446744073709551615-18446744073709551615",
        ] {
            set_id(&server, "a", id).await?;
            let before = last(&server, "a").await?;
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
            // Plain commands may have used up ids that are no tokens.
            let after = last(&server, "a").await?;
            assert!(after.0 == before.0 && after.1 <= before.1.saturating_add(9), "{after:?}");
            let state: LockState = client.inspect(&name("a")).await?;
            let seen = state.last_token.ok_or("it shows none")?;
            assert!(state.is_free() && seen.get() >= MOST, "{id} is shown as {seen}");
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
                set_last(&server, "a", 9_007_199_254_741_993).await?;
                assert_eq!(renew(&client, std::slice::from_ref(&held)).await?, [Renewed::Kept]);
                assert_eq!(take(&client, &held).await?, had);
                is_spent(&other.acquire(&exclusive("a")).await.err().ok_or("it waits")?);
                free(&client, &held).await?;
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
        set_last(&server, "a", MOST + 1).await?;
        free(&client, &held).await?;
        // The waiter gets no message, so it polls.
        let answer = tokio::time::timeout(SOON, other.granted(&waiting)).await?;
        is_spent(&answer.err().ok_or("granted")?);
        other.release(&waiting.as_claim()).await?;
        assert!(client.inspect(&name("a")).await?.is_free());
        // Another bucket has its own tokens.
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
        set_last(&masters.servers()[0], "a", 9_007_199_254_741_993).await?;
        until("it is granted by the others", async || Ok(works().await.is_ok())).await?;
        set_last(&masters.servers()[1], "a", MOST).await?;
        is_spent(&client.acquire(&attempt("a")).await.err().ok_or("granted")?);
        Ok(())
    });
}

fn token(value: u64) -> Result<FencingToken, Stop> {
    Ok(FencingToken::new(value)?)
}

#[test]
fn tokens_are_not_raised_beyond_the_exact_numbers() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let far = token(1 << 53)?;
        let error = client.raise_tokens(&name("a"), far).await.unwrap_err();
        says(&error, ErrorKind::Config(ConfigIssue::Token), "exactly");
        // Just below the limit, tokens are still distinct.
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

const WHILE: Duration = Duration::from_secs(3);

async fn held(client: &DynBackend, request: &AcquireRequest) -> Result<FencingToken, Stop> {
    Ok(match client.acquire(request).await? {
        Acquired::Granted(grant) => grant.token,
        _ => tokio::time::timeout(SOON, client.granted(request)).await??.token,
    })
}

/// Far ahead of the masters' clocks, so that new tokens depend on the masters' last tokens only.
async fn ahead(masters: &RedisMasters) -> Result<u64, Stop> {
    let time = masters.servers()[0].command(&["TIME"]).await?.ok()?.texts()?;
    Ok((time[0].parse::<u64>()? + 3600) * 1_000_000 + time[1].parse::<u64>()?)
}

async fn last_tokens(masters: &RedisMasters, lasts: [u64; 3]) -> Result<(), Stop> {
    for (server, last) in masters.servers().iter().zip(lasts) {
        set_last(server, "a", last).await?;
    }
    Ok(())
}

/// Returns the URL of a client that can't reach one of the masters.
fn two_of(masters: &RedisMasters, unreachable: usize) -> String {
    let mut addresses: Vec<_> = masters.servers().iter().map(RedisServer::address).collect();
    addresses[unreachable] = "127.0.0.1:1".to_owned();
    format!("redis+quorum://{}?dlock.restart_guard=0s", addresses.join(","))
}

#[test]
fn two_readers_of_a_quorum_never_share_a_token() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        // Each client reaches two masters, so each has another majority.
        let mut clients = Vec::new();
        for unreachable in 0..3 {
            let mut addresses: Vec<_> =
                masters.servers().iter().map(RedisServer::address).collect();
            addresses[unreachable] = "127.0.0.1:1".to_owned();
            let url = format!("redis+quorum://{}?dlock.restart_guard=0s", addresses.join(","));
            clients.push(connect(&url).await?);
        }
        let base = ahead(&masters).await?;
        let (began, mut round) = (Instant::now(), 0_u64);
        while began.elapsed() < WHILE {
            round += 1;
            // The masters' last tokens differ by a little, differently in each round.
            let offset = |by: u64| base + 1000 * round + (round / by) % 4;
            last_tokens(&masters, [offset(1), offset(4), offset(16)]).await?;
            let [a, b, c] = [0; 3].map(|_| ask("a", Mode::Shared));
            let (a_has, b_has, c_has) =
                tokio::join!(held(&clients[0], &a), held(&clients[1], &b), held(&clients[2], &c),);
            let mut tokens = [a_has?, b_has?, c_has?];
            tokens.sort_unstable();
            assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "round {round}: {tokens:?}");
            for (client, request) in clients.iter().zip([&a, &b, &c]) {
                free(client, request).await?;
            }
            let writer = exclusive("a");
            let token = held(&clients[0], &writer).await?;
            assert!(token > tokens[2], "round {round}: {token} after {tokens:?}");
            free(&clients[0], &writer).await?;
        }
        Ok(())
    });
}

/// The index of the token in the command that writes it back: after the digest, the number of keys,
/// five keys, and the claim.
const TOKEN: usize = 9;

#[test]
fn a_late_write_back_of_a_token_lowers_nothing() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        // The client reaches two masters, so it needs the vote of the one with the lowest token.
        let client = connect(&two_of(&masters, 2)).await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            let base = ahead(&masters).await?;
            last_tokens(&masters, [base, base + 100, base + 200]).await?;
            let lowest = &masters.servers()[0];
            let alone = connect(&lowest.url()).await?;
            let mut recording = Recording::start(lowest).await?;
            let request = ask("a", mode);
            let token = held(&client, &request).await?;
            let raised = recording.with(&token.to_string()).await?;
            let raised =
                raised.iter().rfind(|command| command.get(TOKEN) == Some(&token.to_string()));
            let raised = raised.ok_or("the token was not written back")?;
            let mut late = raised.clone();
            for less in [1, 50, 1_000_000] {
                late[TOKEN] = (token.get() - less).to_string();
                replay(lowest, &late).await?.ok()?;
                let (millis, sequence) = last(lowest, "a").await?;
                let shown = 1000 * millis + sequence;
                assert!(shown >= token.get(), "{shown} after {token}");
                let state = alone.inspect(&request.name).await?;
                assert_eq!(state.holders[0].token, Some(token));
            }
            free(&client, &request).await?;
            assert!(alone.inspect(&request.name).await?.last_token >= Some(token));
            // The late command does not restore a released claim either.
            replay(lowest, raised).await?.ok()?;
            let next = ask("a", mode);
            assert!(held(&client, &next).await? > token);
            free(&client, &next).await?;
            for server in masters.servers() {
                server.command(&["FLUSHALL"]).await?.ok()?;
            }
        }
        Ok(())
    });
}
