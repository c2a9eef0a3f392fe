//! Keys and values that other programs, or other versions of dlock, have written.

use std::time::Duration;

use dlock_core::{Acquired, ErrorKind, Mode, Released};

use crate::support::{
    ask, attempt, connect, exclusive, fails, free, granted, keys, name, queue, run, says, start,
    take, works,
};

#[test]
fn another_program_s_key_is_refused_with_its_name() {
    run(async {
        let (server, client, _) = start().await?;
        for rest in ["lock", "0123456789abcdefg"] {
            let key = format!("/dlock/a/{rest}");
            server.put(&key, "x").await?;
            for mode in [Mode::Exclusive, Mode::permits(1, 2)?] {
                for request in [ask("a", mode), attempt("a", mode)] {
                    let error = fails(&client, &request).await?;
                    says(&error, ErrorKind::Protocol, rest);
                    client.release(&request.as_claim()).await?;
                }
            }
            let error = client.inspect(&name("a")).await.err().ok_or("it is shown")?;
            says(&error, ErrorKind::Protocol, "find out");
            assert_eq!(keys(&server, "a").await?, *std::slice::from_ref(&key), "left behind");
            server.delete(&key).await?;
        }
        works(&client, "a").await
    });
}

/// A root within another root: none of its keys belongs to the lock that is named like it.
#[test]
fn a_root_within_another_one_does_not_disturb_its_locks() {
    run(async {
        let (server, client, other) = start().await?;
        let inner = connect(&format!("{}/dlock/a?dlock.session_timeout=15s", server.url())).await?;
        let modes = [Mode::Exclusive, Mode::Shared, Mode::permits(2, 2)?];
        let nested: Vec<_> = (0..5).map(|at| exclusive(&at.to_string())).collect();
        for request in &nested {
            take(&inner, request).await?;
        }
        for mode in modes {
            for held in [ask("a", mode), attempt("a", mode)] {
                take(&client, &held).await?;
                if mode == Mode::Exclusive {
                    assert_eq!(other.acquire(&attempt("a", mode)).await?, Acquired::Busy);
                    let next = exclusive("a");
                    queue(&other, &next).await?;
                    let another = exclusive("another");
                    take(&inner, &another).await?;
                    free(&client, &held).await?;
                    granted(&other, &next).await?;
                    free(&inner, &another).await?;
                    free(&other, &next).await?;
                } else {
                    assert_eq!(client.inspect(&name("a")).await?.holders.len(), 1);
                    free(&client, &held).await?;
                }
            }
        }
        assert_eq!(client.list("", 9).await?, []);
        for request in &nested {
            free(&inner, request).await?;
        }
        Ok(())
    });
}

#[test]
fn records_of_a_later_format_are_refused_and_kept() {
    run(async {
        let (server, client, other) = start().await?;
        let id = exclusive("a").claim;
        for (key, value) in [
            (format!("/dlock/a/n9-{id}"), "anything".to_owned()),
            (format!("/dlock/a/p{id}"), format!("1/2 1000 {id} \u{1}9 web-3")),
        ] {
            server.put(&key, &value).await?;
            let request = ask("a", Mode::permits(1, 2)?);
            says(&fails(&client, &request).await?, ErrorKind::Protocol, "format 9");
            client.release(&request.as_claim()).await?;
            let error = client.inspect(&name("a")).await.err().ok_or("it is shown")?;
            says(&error, ErrorKind::Protocol, "format 9");
            let claim = request.with_claim(id).as_claim();
            match other.release(&claim).await {
                Err(error) => says(&error, ErrorKind::Protocol, "format 9"),
                Ok(released) => assert_eq!(released, Released::AlreadyLost),
            }
            assert_eq!(keys(&server, "a").await?, *std::slice::from_ref(&key));
            server.delete(&key).await?;
        }
        works(&client, "a").await
    });
}

#[test]
fn a_truncated_value_blocks_as_its_key_says() {
    run(async {
        let (server, client, _) = start().await?;
        let (id, next) = (exclusive("a").claim, exclusive("a"));
        for value in ["", "x", "x 60", "\u{1}"] {
            let key = format!("/dlock/a/{id}");
            server.put(&key, value).await?;
            assert_eq!(client.acquire(&attempt("a", Mode::Shared)).await?, Acquired::Busy);
            queue(&client, &next).await?;
            let state = client.inspect(&name("a")).await?;
            assert_eq!(state.holders[0].claim, id);
            assert_eq!(state.holders[0].remaining, Duration::MAX, "it has no lease");
            server.delete(&key).await?;
            granted(&client, &next).await?;
            free(&client, &next).await?;
        }
        server.put(&format!("/dlock/a/p{id}"), "2/").await?;
        let request = ask("a", Mode::permits(1, 2)?);
        says(&fails(&client, &request).await?, ErrorKind::Protocol, "number of permits");
        client.release(&request.as_claim()).await?;
        // An operator revokes the claim by its id.
        client.release(&request.with_claim(id).as_claim()).await?;
        take(&client, &next).await?;
        free(&client, &next).await
    });
}
