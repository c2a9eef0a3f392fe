//! Tokens of readers of a quorum, and of a claim that gets an older answer.

use dlock_core::{AcquireRequest, Acquired, DynBackend, FencingToken, Mode};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::{Duration, Instant};

use crate::{
    replay::{Tape, replay},
    support::{SOON, ask, connect, exclusive, free, keys, run},
};

const WHILE: Duration = Duration::from_secs(3);

async fn held(client: &DynBackend, request: &AcquireRequest) -> Result<FencingToken, Stop> {
    Ok(match client.acquire(request).await? {
        Acquired::Granted(grant) => grant.token,
        _ => tokio::time::timeout(SOON, client.granted(request)).await??.token,
    })
}

/// Far ahead of the masters' clocks, so that it is the masters' last tokens that count.
async fn ahead(masters: &RedisMasters) -> Result<u64, Stop> {
    let time = masters.servers()[0].command(&["TIME"]).await?.ok()?.texts()?;
    Ok((time[0].parse::<u64>()? + 3600) * 1_000_000 + time[1].parse::<u64>()?)
}

async fn last_tokens(masters: &RedisMasters, lasts: [u64; 3]) -> Result<(), Stop> {
    for (server, last) in masters.servers().iter().zip(lasts) {
        server.command(&["SET", &keys("a")[1], &last.to_string(), "PX", "600000"]).await?.ok()?;
    }
    Ok(())
}

/// The URL of a client that does not reach one of them.
fn two_of(masters: &RedisMasters, unreachable: usize) -> String {
    let mut addresses: Vec<_> = masters.servers().iter().map(RedisServer::address).collect();
    addresses[unreachable] = "127.0.0.1:1".to_owned();
    format!("redis+quorum://{}?dlock.restart_guard=0s", addresses.join(","))
}

#[test]
fn two_readers_of_a_quorum_never_share_a_token() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        // Each reaches two of them, so that each has another majority.
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
            // The masters' last tokens differ by a little, in ever other ways.
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

/// Where in the command that writes a token back the token stands: behind the digest, the count of
/// the keys, five keys, and the claim.
const TOKEN: usize = 9;

#[test]
fn a_late_write_back_of_a_token_lowers_nothing() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        // It reaches two, and so needs the vote of the lowest.
        let client = connect(&two_of(&masters, 2)).await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            let base = ahead(&masters).await?;
            last_tokens(&masters, [base, base + 100, base + 200]).await?;
            let lowest = &masters.servers()[0];
            let alone = connect(&lowest.url()).await?;
            let mut tape = Tape::start(lowest).await?;
            let request = ask("a", mode);
            let token = held(&client, &request).await?;
            let raised = tape.with(&token.to_string()).await?;
            let raised =
                raised.iter().rfind(|command| command.get(TOKEN) == Some(&token.to_string()));
            let raised = raised.ok_or("the token was not written back")?;
            let mut late = raised.clone();
            for less in [1, 50, 1_000_000] {
                late[TOKEN] = (token.get() - less).to_string();
                replay(lowest, &late).await?.ok()?;
                let shown = lowest.command(&["GET", &keys("a")[1]]).await?.text()?;
                let shown: u64 = shown.trim_end_matches('q').parse()?;
                assert!(shown >= token.get(), "{shown} after {token}");
                let state = alone.inspect(&request.name).await?;
                assert_eq!(state.holders[0].token, Some(token));
            }
            free(&client, &request).await?;
            assert!(alone.inspect(&request.name).await?.last_token >= Some(token));
            // Nor does it bring back what is gone.
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
