//! Invalid input: an error that names the remedy, before any request is sent.

use dlock_core::{ErrorKind, FencingToken, Mode};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::support::{ask, exclusive, free, name, refused, run, says, start, take};

#[test]
fn endpoints_that_are_not_etcd_are_refused() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let web = listener.local_addr()?;
        let closed = TcpListener::bind("127.0.0.1:0").await?;
        let gone = closed.local_addr()?;
        drop(closed);
        let serving = async {
            loop {
                if let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                }
            }
        };
        let url = format!("etcd://{web}?dlock.session_timeout=6s");
        let error = tokio::select! {
            () = serving => return Ok(()),
            error = refused(&url) => error?,
        };
        assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Unavailable), "{error:?}");
        let error = refused(&format!("etcd://{gone}?dlock.session_timeout=6s")).await?;
        says(&error, ErrorKind::Unavailable, "check");
        Ok(())
    });
}

#[test]
fn more_than_63_names_are_refused_and_63_are_not() {
    run(async {
        let (_server, client, _) = start().await?;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(1, 2)?] {
            let all: Vec<_> = (0..64).map(|at| ask(&format!("{at}"), mode)).collect();
            let answer = client.acquire_all(&all).ok_or("it does not take several")?;
            says(&answer.await.err().ok_or("64 names")?, ErrorKind::Unsupported, "63");
            assert_eq!(client.list("", 100).await?, []);
            let most = &all[..63];
            client.acquire_all(most).ok_or("it does not take several")?.await?;
            for request in most {
                assert_eq!(client.inspect(&request.name).await?.holders.len(), 1);
                free(&client, request).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn tokens_can_not_be_raised_and_the_remedy_is_named() {
    run(async {
        let (_server, client, _) = start().await?;
        let above = FencingToken::new(1 << 60)?;
        let error = client.raise_tokens(&name("a"), above).await.err().ok_or("they are raised")?;
        says(&error, ErrorKind::Unsupported, "--bump-revision");
        let held = exclusive("a");
        assert!(take(&client, &held).await?.token < above);
        free(&client, &held).await
    });
}
