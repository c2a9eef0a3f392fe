//! What a worker tells the shop, one line each.

use std::{fmt, str::FromStr};

use dlock::FencingToken;

use crate::Failure;

#[derive(Debug)]
pub(crate) enum Line {
    /// The worker is ready for buyers.
    Ready,
    /// A buyer was told that the item is theirs.
    Sold,
    /// A buyer was told that there is none left.
    SoldOut,
    /// The lock is held, and so many items were read.
    Holding { token: FencingToken, left: u32 },
    /// The stock has refused a write.
    Refused(String),
    /// What the guard would have said before the write, had it been asked.
    Guard(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Sold => write!(f, "sold"),
            Self::SoldOut => write!(f, "sold-out"),
            Self::Holding { token, left } => write!(f, "holding {token} {left}"),
            Self::Refused(why) => write!(f, "refused {why}"),
            Self::Guard(what) => write!(f, "guard {what}"),
        }
    }
}

impl FromStr for Line {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match word {
            "ready" => Self::Ready,
            "sold" => Self::Sold,
            "sold-out" => Self::SoldOut,
            "refused" => Self::Refused(rest.to_owned()),
            "guard" => Self::Guard(rest.to_owned()),
            "holding" => {
                let (token, left) = rest.split_once(' ').unwrap_or_default();
                Self::Holding { token: FencingToken::new(token.parse()?)?, left: left.parse()? }
            }
            _ => return Err(format!("a worker said {text:?}").into()),
        })
    }
}
