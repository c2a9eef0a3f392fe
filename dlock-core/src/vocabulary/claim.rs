//! Claims: how a client identifies one acquisition to the store.

use std::{fmt, str::FromStr};

use crate::{Error, ErrorKind, LockName};

/// The identity of one acquisition: 128 random bits, which the client creates before it sends the
/// first request.
///
/// Every verb is idempotent by this id, so a client retries after a lost reply. Only a client that
/// knows the id can release the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// The id in the state of a holder whose claim the store does not know: another program or
    /// another session has the lock. No acquisition has this id, so it can't be released.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// Creates a random id.
    pub fn random() -> Self {
        Self::from_bits(rand::random())
    }

    /// Creates the id with these bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits.to_be_bytes())
    }

    /// Returns the bits.
    pub const fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClaimId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (mut bytes, mut seen) = ([0; 16], 0);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (high, low) = (VALUES[usize::from(*high)], VALUES[usize::from(*low)]);
            *byte = high << 4 | low;
            seen |= high | low;
        }
        if pairs.len() != bytes.len() || !rest.is_empty() || seen > 15 {
            let text = "a claim id is not 32 hexadecimal digits: check what wrote it";
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        Ok(Self(bytes))
    }
}

/// The values of [`DIGITS`]; the values of other bytes are above 15.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        values[DIGITS[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// One acquisition as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Claim {
    /// The lock.
    pub name: LockName,
    /// The id of the acquisition.
    pub id: ClaimId,
    /// The number of tokens of the grant's block that were used; zero if the client does not know
    /// it. On release, a store takes the rest of the block back, so that tokens do not run ahead of
    /// its clock.
    pub used: u32,
}

impl Claim {
    /// Creates an acquisition without information about its tokens.
    pub const fn new(name: LockName, id: ClaimId) -> Self {
        Self { name, id, used: 0 }
    }

    /// Returns the claim with this number of used tokens.
    #[must_use]
    pub fn with_used(self, used: u32) -> Self {
        Self { used, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let id = ClaimId::random();
        assert_eq!(id.to_string().parse::<ClaimId>().unwrap(), id);
        for bad in [
            "",
            "0",
            "+0000000000000000000000000000000",
            "G0000000000000000000000000000000",
            "A0000000000000000000000000000000",
        ] {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad}");
        }
    }
}
