//! The store that an example uses: `--url URL`, or `DLOCK_URL`, or the example's own.

use lexopt::{Arg, Parser, ValueExt as _};

/// Returns the URL that the user gave, or else `own`.
pub(crate) fn url(own: &str) -> Result<String, lexopt::Error> {
    let mut url = std::env::var("DLOCK_URL").ok();
    let mut parser = Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("url") => url = Some(parser.value()?.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(url.unwrap_or_else(|| own.to_owned()))
}
