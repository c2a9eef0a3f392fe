//! The JSON forms of the values in a history: times in nanoseconds, modes in a few letters.

/// A point in time, as nanoseconds of the clock that all processes share.
pub(super) mod nanos {
    use dlock_core::Instant;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(at: &Instant, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(at.as_nanos())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Instant, D::Error> {
        u64::deserialize(from).map(Instant::from_nanos)
    }
}

/// A fencing token, as a number.
pub(super) mod token {
    use dlock_core::FencingToken;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(token: &FencingToken, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(token.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<FencingToken, D::Error> {
        FencingToken::new(u64::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A mode: `x` for exclusive, `s` for shared, `2/3` for two of three permits.
pub(super) mod mode {
    use dlock_core::Mode;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(mode: &Mode, to: S) -> Result<S::Ok, S::Error> {
        match mode {
            Mode::Exclusive => to.serialize_str("x"),
            Mode::Shared => to.serialize_str("s"),
            mode => to.collect_str(&format_args!("{}/{}", mode.weight(), mode.capacity())),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
        let text = String::deserialize(from)?;
        let bad = || D::Error::custom(format_args!("no mode: {text}"));
        let number = |text: &str| text.parse().map_err(|_| bad());
        match (text.as_str(), text.split_once('/')) {
            ("x", _) => Ok(Mode::Exclusive),
            ("s", _) => Ok(Mode::Shared),
            (_, Some((n, of))) => Mode::permits(number(n)?, number(of)?).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}
