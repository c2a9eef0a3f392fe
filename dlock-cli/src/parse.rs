//! Parses the values of arguments.

use std::time::Duration;

use dlock::FencingToken;

/// Parses a duration in the format of the URL's options.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a duration such as 500ms, 30s or 5m".to_owned())
}

/// Parses a duration that must not be zero.
pub(crate) fn pause(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        pause if pause.is_zero() => Err("write a duration above zero, such as 1s".to_owned()),
        pause => Ok(pause),
    }
}

/// Parses a fencing token.
pub(crate) fn token(text: &str) -> Result<FencingToken, String> {
    let token = text.parse::<u64>().ok().and_then(|value| FencingToken::new(value).ok());
    token.ok_or_else(|| format!("write a whole number from 1 to {}", FencingToken::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_in_urls() {
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("30").is_err());
        assert!(pause("0s").is_err());
    }

    #[test]
    fn tokens_are_whole_numbers_above_zero() {
        assert_eq!(token("7").map(FencingToken::get), Ok(7));
        for wrong in ["", "0", "-1", "7.5", "seven", "9223372036854775808"] {
            let error = token(wrong).unwrap_err();
            assert!(error.contains("from 1 to 9223372036854775807"), "{wrong}: {error}");
        }
    }
}
