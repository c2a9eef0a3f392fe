//! The findings about the sentinels, from their own answers.

use std::collections::HashMap;

use dlock_core::Finding;

use crate::{config::RedisConfig, link::sentinel, reply};

/// Queries all sentinels that the URL names.
pub(super) async fn examine(config: &RedisConfig, name: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut seen, mut away) = (None, Vec::new());
    for address in &config.addresses {
        match sentinel::master(config, address, name).await {
            Ok(master) => seen = seen.or_else(|| reply::pairs(&master)),
            Err(error) => away.push((address, error)),
        }
    }
    for (address, error) in away {
        findings.push(Finding::warning(
            "sentinels",
            format!("{address} does not answer ({:.120})", error.to_string()),
            "check that it runs and knows the master (SENTINEL MASTERS), or remove it from the URL",
        ));
    }
    findings.extend(seen.map(|master| judge(&master)));
    findings
}

fn judge(master: &HashMap<String, String>) -> Finding {
    let number = |name: &str| master.get(name).and_then(|text| text.parse::<u64>().ok());
    let (Some(others), Some(quorum)) = (number("num-other-sentinels"), number("quorum")) else {
        return Finding::warning(
            "sentinels",
            "they do not report how many they are",
            "run SENTINEL MASTER name on one of them",
        );
    };
    let (all, down) = (others + 1, number("down-after-milliseconds").unwrap_or(0));
    let found = format!(
        "{all} sentinels, of which {quorum} must agree that the master is down for {down} ms"
    );
    if all < 3 {
        return Finding::warning(
            "sentinels",
            found,
            "run three or more, on separate machines: with fewer, none of them may fail",
        );
    }
    if quorum > all {
        return Finding::wrong(
            "sentinels",
            found,
            format!(
                "run SENTINEL SET name quorum {}: with the quorum that is set they never fail over",
                all / 2 + 1
            ),
        );
    }
    if 2 * quorum <= all {
        return Finding::warning(
            "sentinels",
            found,
            format!(
                "run SENTINEL SET name quorum {}, so that a partitioned minority starts no \
                 failover",
                all / 2 + 1
            ),
        );
    }
    Finding::fine("sentinels", found)
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;
    use redis::Value;

    use super::*;

    #[test]
    fn few_sentinels_and_odd_quorums_are_reported() {
        let of = |others: u64, quorum: u64| {
            let text = |text: String| Value::BulkString(text.into_bytes());
            let pair = |name: &str, value: u64| [text(name.to_owned()), text(value.to_string())];
            let parts = [pair("num-other-sentinels", others), pair("quorum", quorum)].concat();
            judge(&reply::pairs(&Value::Array(parts)).unwrap())
        };
        assert_eq!(of(2, 2).level, Level::Fine);
        assert_eq!(of(0, 1).level, Level::Warning);
        assert_eq!(of(2, 1).level, Level::Warning);
        assert_eq!(of(2, 4).level, Level::Wrong);
        assert_eq!(judge(&HashMap::new()).level, Level::Warning);
    }
}
