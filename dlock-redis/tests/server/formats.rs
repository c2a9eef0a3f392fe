//! Records of a later format, and records that were cut off: the error names the problem, and the
//! record stays unchanged.

use dlock_core::{AcquireRequest, DynBackend, Error, ErrorKind, Mode, Queue, Renewal, Renewed};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::timeout;

use crate::support::{
    KEYS_OF_A, SOON, ask, attempt, connect, exclusive, free, queue, run, says, start, take, until,
    works,
};

const HOLDER: &str = KEYS_OF_A[0];
const WAITERS: &str = KEYS_OF_A[3];

/// The end of a record of a later format, behind the fields of format 1.
const MARKER: &str = " \u{1}9 web-3";

const SAYS: &str = "has format 9, and this program reads format";

async fn text(server: &RedisServer, command: &[&str]) -> Result<String, Stop> {
    let answer = server.command(command).await?.ok()?;
    Ok(format!("{answer:?}"))
}

/// Returns the dump of every key of the lock.
async fn all(server: &RedisServer) -> Result<Vec<String>, Stop> {
    let mut all = Vec::new();
    // Tokens may be used up.
    for key in [0, 2, 3, 4].map(|part| KEYS_OF_A[part]) {
        all.push(text(server, &["DUMP", key]).await?);
    }
    Ok(all)
}

#[track_caller]
fn fails<T: std::fmt::Debug>(answer: Result<T, Error>) {
    says(&answer.expect_err("it can't be read"), ErrorKind::Protocol, SAYS);
}

/// Checks that everything that has to read the lock fails, and changes nothing.
async fn all_fails(server: &RedisServer, client: &DynBackend) -> Verdict {
    let before = all(server).await?;
    for request in [exclusive("a"), attempt("a"), ask("a", Mode::Shared)] {
        fails(client.acquire(&request).await);
    }
    fails(client.acquire_all(&[exclusive("a")]).ok_or("it takes several at once")?.await);
    fails(client.inspect(&exclusive("a").name).await);
    assert_eq!(all(server).await?, before);
    Ok(())
}

fn renewal(request: &AcquireRequest) -> Renewal {
    Renewal::new(request.as_claim(), request.mode, request.lease)
}

#[test]
fn a_lock_of_a_later_format_is_an_error_and_stays_held() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        let token = take(&client, &held).await?.token;
        let claim = held.claim;
        let later = format!("{claim}:{token}{MARKER}");
        server.command(&["SET", HOLDER, &later, "KEEPTTL"]).await?.ok()?;
        all_fails(&server, &client).await?;
        // Its client renews it, but does not release it, since the record may have a further
        // meaning.
        assert_eq!(client.renew(&[renewal(&held)]).await?, [Renewed::Kept]);
        for used in [0, 1] {
            fails(client.release(&held.as_claim().with_used(used)).await);
        }
        let expected = text(&server, &["ECHO", &later]).await?;
        assert_eq!(text(&server, &["GET", HOLDER]).await?, expected);
        server.command(&["DEL", HOLDER]).await?.ok()?;
        works(&client, "a").await
    });
}

#[test]
fn a_wait_behind_a_later_format_ends_with_its_error() {
    run(async {
        let (server, client) = start().await?;
        let (held, waiting) =
            (exclusive("a"), exclusive("a").with_lease(std::time::Duration::from_secs(8)));
        take(&client, &held).await?;
        queue(&client, &waiting).await?;
        let later = format!("{}!7{MARKER}", held.claim);
        server.command(&["SET", HOLDER, &later, "KEEPTTL"]).await?.ok()?;
        fails(timeout(SOON, client.granted(&waiting)).await?);
        let expected = text(&server, &["ECHO", &later]).await?;
        assert_eq!(text(&server, &["GET", HOLDER]).await?, expected);
        Ok(())
    });
}

/// A waiter whose record has a later format keeps its position, for a client that reads it.
#[test]
fn a_waiter_of_a_later_format_keeps_its_position() {
    run(async {
        let (server, client) = start().await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&client, &waiting).await?;
        let claim = waiting.claim.to_string();
        let record = server.command(&["HGET", WAITERS, &claim]).await?.ok()?.text()? + MARKER;
        server.command(&["HSET", WAITERS, &claim, &record]).await?.ok()?;
        let before = text(&server, &["HGET", WAITERS, &claim]).await?;
        fails(client.inspect(&held.name).await);
        fails(client.release(&waiting.as_claim()).await);
        // The holder can still be renewed and released.
        assert_eq!(client.renew(&[renewal(&held)]).await?, [Renewed::Kept]);
        free(&client, &held).await?;
        all_fails(&server, &client).await?;
        fails(timeout(SOON, client.granted(&waiting)).await?);
        assert_eq!(text(&server, &["HGET", WAITERS, &claim]).await?, before);
        Ok(())
    });
}

#[test]
fn a_reader_of_a_later_format_is_renewed_and_not_released() {
    run(async {
        let (server, client) = start().await?;
        let held = ask("a", Mode::Shared);
        take(&client, &held).await?;
        let claim = held.claim.to_string();
        let record = format!("1:1073741824:1:180000:7:{MARKER}");
        server.command(&["HSET", WAITERS, &claim, &record]).await?.ok()?;
        fails(client.inspect(&held.name).await);
        fails(client.release(&held.as_claim()).await);
        assert_eq!(client.renew(&[renewal(&held)]).await?, [Renewed::Kept]);
        let expected = text(&server, &["ECHO", &record]).await?;
        assert_eq!(text(&server, &["HGET", WAITERS, &claim]).await?, expected);
        // Others share the lock, or wait for it.
        let other = ask("a", Mode::Shared);
        take(&client, &other).await?;
        queue(&client, &exclusive("a")).await?;
        free(&client, &other).await
    });
}

#[test]
fn truncated_records_are_errors_and_stay_unchanged() {
    run(async {
        let (server, client) = start().await?;
        let not_ours = "something that is not dlock's";
        let held = exclusive("a");
        let cut = format!("{}:", held.claim);
        server.command(&["SET", HOLDER, &cut, "PX", "500000"]).await?.ok()?;
        let before = all(&server).await?;
        for used in [0, 1] {
            let error = client.release(&held.as_claim().with_used(used)).await;
            says(&error.err().ok_or("released")?, ErrorKind::Protocol, not_ours);
        }
        for queue in [Queue::Enqueue, Queue::FailIfBusy] {
            let error = client.acquire(&exclusive("a").with_queue(queue)).await;
            says(&error.err().ok_or("granted")?, ErrorKind::Protocol, not_ours);
        }
        let error = client.inspect(&held.name).await;
        says(&error.err().ok_or("read")?, ErrorKind::Protocol, not_ours);
        assert_eq!(all(&server).await?, before);
        Ok(())
    });
}

/// Cuts off the record of a waiter.
async fn cut_off(server: &RedisServer, waiting: &AcquireRequest) -> Verdict {
    server.command(&["HSET", WAITERS, &waiting.claim.to_string(), "1073741824:10"]).await?.ok()?;
    Ok(())
}

/// Makes a reader hold `a`, with a damaged waiter behind it.
async fn damage(server: &RedisServer, client: &DynBackend) -> Result<[AcquireRequest; 2], Stop> {
    let (held, waiting) = (ask("a", Mode::Shared), exclusive("a"));
    take(client, &held).await?;
    queue(client, &waiting).await?;
    cut_off(server, &waiting).await?;
    Ok([held, waiting])
}

const DAMAGED: &str = "the record of a waiter can't be read";

#[track_caller]
fn is_damaged<T: std::fmt::Debug>(answer: Result<T, Error>) {
    says(&answer.expect_err("it can't be read"), ErrorKind::Protocol, DAMAGED);
}

#[test]
fn a_damaged_waiter_is_named_until_its_field_is_deleted() {
    run(async {
        let (server, client) = start().await?;
        let [held, waiting] = damage(&server, &client).await?;
        // The holder is renewed, and the script finds the damage.
        assert_eq!(client.renew(&[renewal(&held)]).await?, [Renewed::Kept]);
        let before = all(&server).await?;
        for queue in [Queue::Enqueue, Queue::FailIfBusy] {
            is_damaged(client.acquire(&ask("a", Mode::Shared).with_queue(queue)).await);
        }
        let claim = waiting.claim.to_string();
        for answer in [
            client.release(&waiting.as_claim()).await.map(|_| ()),
            client.inspect(&held.name).await.map(|_| ()),
        ] {
            let error = answer.err().ok_or("read")?;
            says(&error, ErrorKind::Protocol, &format!("the waiter {claim} in the key {WAITERS}"));
        }
        assert_eq!(all(&server).await?, before);
        // The message of the error names this command.
        server.command(&["HDEL", WAITERS, &claim]).await?.ok()?;
        take(&client, &ask("a", Mode::Shared)).await?;
        Ok(())
    });
}

#[test]
fn a_damaged_waiter_leaves_the_queue_after_ten_minutes() {
    run(async {
        let (server, client) = start().await?;
        let [held, waiting] = damage(&server, &client).await?;
        is_damaged(client.acquire(&attempt("a").with_mode(Mode::Shared)).await);
        let field = format!("?{}", waiting.claim);
        let time = server.command(&["TIME"]).await?.texts()?;
        let now = time[0].parse::<u64>()? * 1_000_000;
        let leaves: u64 = server.command(&["HGET", WAITERS, &field]).await?.text()?.parse()?;
        assert!((590_000_000..=601_000_000).contains(&(leaves - now)), "{leaves} at {now}");
        server.command(&["HSET", WAITERS, &field, &now.to_string()]).await?.ok()?;
        // Each renewal extends the lifetimes of the keys.
        until("the next reader holds the lock", async || {
            assert_eq!(client.renew(&[renewal(&held)]).await?, [Renewed::Kept]);
            Ok(client.acquire(&ask("a", Mode::Shared)).await.is_ok())
        })
        .await?;
        // No key of the lock is left.
        let fields = text(&server, &["HKEYS", WAITERS]).await?;
        assert!(!fields.contains('?'), "{fields}");
        Ok(())
    });
}

/// A claim behind a damaged waiter still waits, so it is not called expired.
#[test]
fn a_claim_behind_a_damaged_waiter_gets_the_error() {
    run(async {
        let (server, client) = start().await?;
        let (held, waiting) = (ask("a", Mode::Shared), exclusive("a"));
        let behind = exclusive("a").with_lease(std::time::Duration::from_secs(8));
        take(&client, &held).await?;
        queue(&client, &waiting).await?;
        queue(&client, &behind).await?;
        cut_off(&server, &waiting).await?;
        let renewed = client.renew(&[renewal(&behind), renewal(&waiting)]).await?;
        assert_eq!(renewed, [Renewed::Unknown, Renewed::Unknown]);
        is_damaged(timeout(SOON, client.granted(&behind)).await?);
        Ok(())
    });
}

/// A number that no integer can hold, under one lock of two.
#[test]
fn a_format_of_many_digits_affects_its_own_name_only() {
    run(async {
        let (server, client) = start().await?;
        let held = [ask("a", Mode::Shared), ask("b", Mode::Shared)];
        for request in &held {
            take(&client, request).await?;
        }
        let later = format!("1073741824:1\u{1}{}", "9".repeat(25));
        server.command(&["HSET", WAITERS, "#", &later]).await?.ok()?;
        let renewed = client.renew(&[renewal(&held[0]), renewal(&held[1])]).await?;
        assert_eq!(renewed, [Renewed::Unknown, Renewed::Kept]);
        says(
            &client.acquire(&exclusive("a")).await.err().ok_or("granted")?,
            ErrorKind::Protocol,
            "and this program reads format",
        );
        Ok(())
    });
}

#[test]
fn a_quorum_reports_a_later_format() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let client = connect(&format!("{}?dlock.restart_guard=0s", masters.url())).await?;
        let later = format!("{}:7{MARKER}", exclusive("a").claim);
        for master in masters.servers() {
            master.command(&["SET", HOLDER, &later, "PX", "500000"]).await?.ok()?;
        }
        fails(client.acquire(&attempt("a")).await);
        fails(client.inspect(&exclusive("a").name).await);
        works(&client, "b").await
    });
}
