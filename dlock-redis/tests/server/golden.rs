//! The keys and the message of `tests/golden`: this version reads them, and writes the same.
//!
//! A line there is `KEY TYPE`, followed by the value of the key: a text, the members of a set with
//! their scores, the fields of a hash with their values, or the fields of a stream's last entry. `T` is a time or a token, and `CHANNEL`
//! is the channel of a client. `S` is the number of a sending. The last line is a message.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, Mode, Note, Renewal, Renewed};
use dlock_redis::{Redis, RedisConfig};
use dlock_testlab::{
    Stop, Verdict,
    redis::{RedisServer, Reply, Resp},
};

use crate::support::{ask, connect, free, granted, queue, run, start, take};

const GOLDEN: &str = include_str!("../golden/format-1.txt");

/// A time in the year 2100, so that no lease of a golden record has ended.
const LATE: u64 = 4_102_444_800_000_000;

const HOLDER: u128 = 1;
const WAITER: u128 = 2;

/// Each lock, and the mode in which it is held.
fn locks() -> [(&'static str, Mode); 7] {
    let permits = Mode::Permits { n: 2, of: 5 };
    [
        ("block", Mode::Exclusive),
        ("free", Mode::Exclusive),
        ("held", Mode::Exclusive),
        ("permits", permits),
        ("read", Mode::Shared),
        ("waited", Mode::Exclusive),
        ("renewed", Mode::Exclusive),
    ]
}

/// Each claim has its own id.
fn id(lock: &str, claim: u128) -> ClaimId {
    let at = locks().iter().zip(1..).find(|((found, _), _)| *found == lock).map(|(_, at)| at);
    ClaimId::from_bits(16 * at.unwrap_or(0) + claim)
}

fn request(lock: &str, mode: Mode, claim: u128) -> AcquireRequest {
    let note = Note::new("web-3 pid 1").ok().filter(|_| matches!(lock, "held" | "waited"));
    ask(lock, mode)
        .with_claim(id(lock, claim))
        .with_tokens(if lock == "block" { 3 } else { 1 })
        .with_note(note)
}

/// Writes the golden keys.
async fn write(client: &DynBackend) -> Verdict {
    for (lock, mode) in locks() {
        let held = request(lock, mode, HOLDER);
        let token = take(client, &held).await?.token;
        match lock {
            "renewed" => {
                let renewal = Renewal::new(held.as_claim(), mode, held.lease).with_token(token);
                assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
            }
            "free" => free(client, &held).await?,
            "read" | "waited" => queue(client, &request(lock, Mode::Exclusive, WAITER)).await?,
            _ => {}
        }
    }
    Ok(())
}

/// Masks the parts that differ between runs.
fn masked(word: &str) -> String {
    let mut text = String::new();
    let mut digits = String::new();
    for c in word.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let is_time = digits.len() == 16 && digits.starts_with("1");
        text.push_str(if is_time { "T" } else { &digits });
        digits.clear();
        text.push(c);
    }
    text.pop();
    if let Some((before, number)) = text.split_once('~') {
        let end = number.find(' ').unwrap_or(number.len());
        return format!("{before}~S{}", &number[end..]);
    }
    match text.split_once("dlock:i:") {
        Some((before, channel)) => {
            let end = channel.find(' ').unwrap_or(channel.len());
            format!("{before}CHANNEL{}", &channel[end..])
        }
        None => text,
    }
}

async fn dump(server: &RedisServer) -> Result<String, Stop> {
    let mut keys = server.keys("*").await?;
    keys.sort_by_key(|key| key.rsplit(':').next().unwrap_or_default().to_owned() + key);
    let mut text = String::new();
    for key in keys {
        let kind = server.command(&["TYPE", &key]).await?.text()?;
        let last = "return redis.call('XREVRANGE',KEYS[1],'+','-','COUNT',1)[1][2]";
        let command: &[&str] = match kind.as_str() {
            "stream" => &["EVAL", last, "1", &key],
            "string" => &["GET", &key],
            "hash" => &["HGETALL", &key],
            _ => &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
        };
        let words = match server.command(command).await?.ok()? {
            Reply::Array(Some(parts)) => {
                let words = parts.into_iter().map(Reply::text).collect::<Result<Vec<_>, _>>()?;
                let mut pairs: Vec<_> =
                    words.chunks(2).map(|pair| pair.iter().map(|w| masked(w)).collect()).collect();
                pairs.sort();
                pairs.into_iter().map(|pair: Vec<_>| pair.join(" = ")).collect::<Vec<_>>()
            }
            value => vec![masked(&value.text()?)],
        };
        // The number of a sending.
        let is_number = |word: &String| kind == "stream" && word.len() > "c = ".len();
        let mask = |word: String| if is_number(&word) { "c = S".to_owned() } else { word };
        let words: Vec<_> = words.into_iter().map(mask).collect();
        text.push_str(&format!("{key} {kind}: {}\n", words.join(" | ")));
    }
    Ok(text)
}

/// Restores the keys from the golden records.
async fn load(server: &RedisServer, golden: &str) -> Verdict {
    for line in golden.lines().filter(|line| line.starts_with("dlock:")) {
        let (key, value) = line.split_once(": ").ok_or("a value")?;
        let (key, kind) = key.rsplit_once(' ').ok_or("a type")?;
        let id = format!("{}-0", LATE / 1000);
        let late = LATE.to_string();
        let value = value.replace("CHANNEL", "dlock:i:0").replace('T', &late).replace('S', "5");
        for part in value.split(" | ") {
            let (name, behind) = part.split_once(" = ").unwrap_or((part, ""));
            let command: &[&str] = match kind {
                "stream" => &["XADD", key, &id, name, behind],
                "string" => &["SET", key, part],
                "hash" => &["HSET", key, name, behind],
                _ => &["ZADD", key, behind, name],
            };
            server.command(command).await?.ok()?;
        }
        server.command(&["PEXPIRE", key, "600000"]).await?.ok()?;
    }
    Ok(())
}

#[test]
fn golden_keys_and_messages_are_written() {
    run(async {
        let (server, client) = start().await?;
        write(&client).await?;
        let mut written = dump(&server).await?;
        let mut listener = Resp::connect(&server.address()).await?;
        listener.command(&["PSUBSCRIBE", "dlock:i:*"]).await?.ok()?;
        free(&client, &request("waited", Mode::Exclusive, HOLDER)).await?;
        granted(&client, &request("waited", Mode::Exclusive, WAITER)).await?;
        let Reply::Array(Some(parts)) = listener.receive().await? else {
            return Err(Stop::failed("no message"));
        };
        let message = parts.into_iter().next_back().ok_or("a message")?.text()?;
        written.push_str(&format!("message: {}\n", masked(&message)));
        assert_eq!(written, GOLDEN);
        Ok(())
    });
}

#[test]
fn golden_keys_are_read() {
    run(async {
        let (server, client) = start().await?;
        load(&server, GOLDEN).await?;
        for (lock, mode) in locks() {
            are_read(&client, lock, mode).await?;
        }
        Ok(())
    });
}

async fn are_read(client: &DynBackend, lock: &str, mode: Mode) -> Verdict {
    let held = request(lock, mode, HOLDER);
    let state = client.inspect(&held.name).await?;
    if lock != "free" {
        let holder = &state.holders[0];
        assert_eq!((holder.claim, holder.mode), (held.claim, mode), "{lock}");
        assert_eq!(holder.note, held.note, "{lock}");
        let renewal = Renewal::new(held.as_claim(), mode, held.lease);
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept], "{lock}");
        free(client, &held).await?;
    }
    let is_waited_for = matches!(lock, "read" | "waited");
    assert_eq!(state.waiters.len(), usize::from(is_waited_for), "{lock}");
    // Tokens continue, for the waiter and for later claims.
    match client.acquire(&request(lock, Mode::Exclusive, WAITER)).await? {
        Acquired::Granted(grant) => assert!(Some(grant.token) > state.last_token, "{lock}"),
        other => return Err(Stop::failed(format!("{lock}: {other:?} after {state:?}"))),
    }
    Ok(())
}

/// The plain form is only the claim, which other programs share.
#[test]
fn a_plain_key_is_the_claim() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.plain=true", server.url());
        let client = connect(&url).await?;
        let held = ask("plain", Mode::Exclusive).with_claim(ClaimId::from_bits(HOLDER));
        take(&client, &held).await?;
        let value = server.command(&["GET", "plain"]).await?.text()?;
        assert_eq!(value, "00000000000000000000000000000001");
        let other = Redis::connect(RedisConfig::from_url(&url)?).await?;
        let renewal = Renewal::new(held.as_claim(), held.mode, Duration::from_secs(60));
        assert_eq!(other.renew(&[renewal]).await?, [Renewed::Kept]);
        free(&other, &held).await
    });
}
