//! Raising the tokens of a name.

use dlock_core::{ConfigIssue, ErrorKind, FencingToken};
use dlock_testlab::Stop;

use crate::support::{connect, exclusive, free, name, run, says, start, take};

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
        // Just below, tokens are still distinct.
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
