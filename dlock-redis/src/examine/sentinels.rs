//! The findings about the sentinels, from their own answers.

use std::collections::HashMap;

use dlock_core::Finding;
use redis::{RedisError, RedisResult, Value};

use crate::{
    config::RedisConfig,
    error::{is_denial, is_refusal},
    link::sentinel,
    reply,
};

/// Queries all sentinels that the URL names.
pub(super) async fn examine(config: &RedisConfig, name: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut seen, mut away) = (None, Vec::new());
    for address in &config.addresses {
        match sentinel::report(config, address, name).await {
            Ok(report) => seen = seen.or(Some(report)),
            Err(error) => away.push((address, error)),
        }
    }
    findings.extend(away.iter().map(|(address, error)| judge_away(address, error)));
    if let Some(report) = seen {
        findings.extend(reply::pairs(&report.master).map(|master| judge(&master)));
        findings.extend(report.has_quorum.err().map(|error| judge_quorum(&error)));
        findings.extend(judge_replicas(&report.replicas));
    }
    findings
}

/// The finding about a sentinel that has not answered `SENTINEL MASTER`.
fn judge_away(address: &str, error: &RedisError) -> Finding {
    let does = if is_refusal(error) { "refuses SENTINEL MASTER" } else { "does not answer" };
    Finding::warning(
        "sentinels",
        format!("{address} {does} ({:.120})", error.to_string()),
        "check that it runs, that it knows the master (SENTINEL MASTERS) and that the user of the \
         sentinels has +sentinel|master, or remove it from the URL",
    )
}

/// The answer to `SENTINEL MASTER` also counts sentinels that are down.
fn judge_quorum(error: &RedisError) -> Finding {
    match error.code() {
        Some("NOQUORUM") => Finding::wrong(
            "sentinels",
            format!("no failover is possible now ({:.120})", error.detail().unwrap_or_default()),
            "start the sentinels that are down, or remove those that are gone (SENTINEL RESET name)",
        ),
        _ => unseen("whether enough sentinels can be reached", "ckquorum", error),
    }
}

/// Whether one of the replicas may become the master. The finding about replication counts them.
fn judge_replicas(replicas: &RedisResult<Value>) -> Option<Finding> {
    const WHAT: &str = "whether a replica may become the master";
    let replicas = match replicas {
        Ok(Value::Array(replicas)) => replicas,
        Ok(other) => return Some(unclear(WHAT, &format!("{other:?}"))),
        Err(error) => return Some(unseen(WHAT, "replicas", error)),
    };
    let is_ready = |replica: HashMap<String, String>| {
        let is = |name: &str| replica.get(name).map_or("", String::as_str);
        is("slave-priority") != "0" && is("flags") == "slave"
    };
    if replicas.is_empty() || replicas.iter().filter_map(reply::pairs).any(is_ready) {
        return None;
    }
    Some(Finding::wrong(
        "sentinels",
        format!(
            "no failover is possible now: none of {} replicas may become the master",
            replicas.len()
        ),
        "set replica-priority to more than 0 on the replicas, and check that they run (SENTINEL \
         REPLICAS name)",
    ))
}

/// The finding about a question that failed with this error.
fn unseen(what: &str, command: &str, error: &RedisError) -> Finding {
    if !is_denial(error) {
        return unclear(what, &error.to_string());
    }
    Finding::warning(
        "sentinels",
        format!("{what} is not visible to this user ({:.120})", error.to_string()),
        format!("allow the user of the sentinels +sentinel|{command}"),
    )
}

fn unclear(what: &str, answer: &str) -> Finding {
    Finding::warning(
        "sentinels",
        format!("{what} is unknown ({answer:.120})"),
        "check that the sentinels run and answer in time, and run the doctor again",
    )
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
    use redis::ServerErrorKind;

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

    #[test]
    fn only_a_refusal_for_want_of_a_right_asks_for_the_right() {
        use redis::ErrorKind::{Extension, Io, Server};

        let (denied, slow) = (ServerErrorKind::NoPerm, "no answer in time");
        for (error, asks) in [
            (RedisError::from((Server(denied), "NOPERM")), true),
            (RedisError::from((Io, slow)), false),
            (RedisError::from((Extension, "BUSY")), false),
        ] {
            let text = error.to_string();
            for finding in [judge_quorum(&error), judge_replicas(&Err(error)).unwrap()] {
                assert_eq!(finding.level, Level::Warning, "{finding:?}");
                assert!(finding.found.contains(&text), "{finding:?}");
                assert_eq!(finding.remedy.unwrap().contains("+sentinel|"), asks, "{text}");
            }
        }
        let nothing = judge_replicas(&Ok(Value::Nil)).unwrap();
        assert!(nothing.found.contains("unknown"), "{nothing:?}");
        assert!(judge_away("a", &(Io, slow).into()).found.contains("does not answer"));
        let refused = judge_away("a", &(Server(denied), "NOPERM").into());
        assert!(refused.found.contains("refuses"), "{refused:?}");
    }
}
