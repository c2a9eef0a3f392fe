//! The lines that a worker sends to the shop.

use std::{fmt, str::FromStr};

use dlock::FencingToken;

use crate::Failure;

#[derive(Debug)]
pub(crate) enum Line {
    /// The worker is ready for buyers.
    Ready,
    /// A buyer got the item.
    Sold,
    /// A buyer got the answer that no item is left.
    SoldOut,
    /// The worker holds the lock and has read how many items are left.
    Holding { token: FencingToken, left: u32 },
    /// The stock has refused a write.
    Refused(String),
    /// The result that the guard would have returned if the worker had checked it before the write.
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
