//! The findings about the cluster, the session and the root.

use std::time::Duration;

use dlock_core::{Error, ErrorKind, Finding};

use crate::{
    client::{AlarmRequest, AlarmType, Bytes, Failure, FailureKind, RangeRequest},
    key::Entry,
    preflight::MemberState,
    session::Session,
};

/// The default quota of a database, which servers before 3.6 do not report.
const QUOTA: i64 = 2 << 30;

/// A cluster that was never compacted gets a finding from this revision on.
const MANY: i64 = 100_000;

/// A cluster that keeps this many revisions gets a finding, even if older ones were compacted. On a
/// busy cluster, compaction once an hour keeps fewer.
const UNCOMPACTED: i64 = 1_000_000;

/// The search for a key of another program reads at most this many pages of this many keys.
const PAGES: usize = 200;
const PAGE: i64 = 1000;

/// Returns the findings.
pub(crate) async fn examine(session: &Session) -> Result<Vec<Finding>, Error> {
    let members = MemberState::of_all(session).await?;
    let list = members.as_deref().unwrap_or_default();
    let mut findings: Vec<Finding> = list.iter().map(version).collect();
    findings.push(count(members.as_deref()));
    findings.extend(alarms(session).await?);
    findings.extend(list.iter().filter_map(size));
    findings.push(compaction(session).await?);
    findings.push(ttl(session.ttl, session.config.session_timeout));
    findings.push(Finding::fine("clock", "clocks do not matter: a lock ends with its session"));
    findings.extend(root(session).await?);
    Ok(findings)
}

fn version(seen: &MemberState) -> Finding {
    let status = match &seen.status {
        Ok(status) => status,
        Err(error) if error.kind() != ErrorKind::Unavailable => {
            let found = format!("sessions can't move to {}", seen.name());
            return Finding::warning("version", found, error.to_string());
        }
        Err(error) => {
            return Finding::warning(
                "version",
                format!("{} does not answer ({error})", seen.name()),
                "start it, or make the client URLs that it announces reachable from here",
            );
        }
    };
    let found = format!("{} runs etcd {:.40}", seen.name(), status.version);
    match seen.version().map(|version| version.faults()) {
        None => Finding::warning("version", found, "use a release of etcd"),
        Some(faults) => match faults.last() {
            None => Finding::fine("version", found),
            Some((fault, repaired)) => Finding::warning(
                "version",
                format!("{found}: {fault}"),
                format!("upgrade it to {repaired} or later"),
            ),
        },
    }
}

fn count(members: Option<&[MemberState]>) -> Finding {
    let remedy = "run three or five members, on separate machines";
    let Some(list) = members else {
        return Finding::warning(
            "members",
            "this client may not list the members",
            "check their number and versions with etcdctl member list",
        );
    };
    let voters = list.iter().filter(|seen| !seen.member.is_learner).count();
    let learners = list.len() - voters;
    let leaders = list.iter().filter_map(|seen| seen.status.as_ref().ok());
    let leader = leaders.map(|status| status.leader).find(|leader| *leader != 0);
    let leader = leader.map_or("no leader is known".into(), |id| format!("{id:x} leads"));
    let found = match learners {
        0 => format!("{voters} members vote, {leader}"),
        _ => format!("{voters} members vote, {learners} are learners, {leader}"),
    };
    match voters {
        1 => Finding::warning(
            "members",
            format!("{found}: while it is down, locks are unavailable"),
            remedy,
        ),
        even if even % 2 == 0 => Finding::warning(
            "members",
            format!("{found}: an even number tolerates no more failures than one less"),
            remedy,
        ),
        _ => Finding::fine("members", found),
    }
}

async fn alarms(session: &Session) -> Result<Vec<Finding>, Error> {
    let alarms = match session.ask(AlarmRequest {}).await {
        Ok((_, answer)) => answer.alarms,
        Err(failure) if failure.kind() == FailureKind::Denied => {
            return Ok(vec![Finding::warning(
                "alarms",
                "this client may not read the alarms",
                "check them with etcdctl alarm list",
            )]);
        }
        Err(failure) => return Err(failure.into()),
    };
    let found = |alarm: i32| {
        if alarm == i32::from(AlarmType::NoSpace) {
            Finding::wrong(
                "alarms",
                "NOSPACE: the quota of the database is used up, and no lock can be acquired",
                "compact and defragment, then run etcdctl alarm disarm; set \
                 --auto-compaction-retention",
            )
        } else {
            Finding::wrong(
                "alarms",
                "CORRUPT: the data of the members differ",
                "replace the members whose data differ from the majority, then run etcdctl alarm \
                 disarm",
            )
        }
    };
    let findings: Vec<_> = alarms.iter().map(|alarm| found(alarm.alarm)).collect();
    Ok(if findings.is_empty() { vec![Finding::fine("alarms", "none")] } else { findings })
}

fn size(seen: &MemberState) -> Option<Finding> {
    let status = seen.status.as_ref().ok()?;
    Some(judge_size(&seen.name(), status.db_size, status.db_size_quota))
}

/// A quota of 0 is one that the member does not report.
fn judge_size(name: &str, size: i64, quota: i64) -> Finding {
    let (limit, known) = match quota {
        0 => (QUOTA, "the default quota"),
        quota => (quota, "the quota"),
    };
    let has = format!("the database of {name} has {} MB", size >> 20);
    if size > limit / 5 * 4 {
        return Finding::warning(
            "quota",
            format!("{has}, {known} is {} MB", limit >> 20),
            "compact and defragment, or raise --quota-backend-bytes: if the quota is used up, no \
             lock can be acquired",
        );
    }
    match quota {
        0 => Finding::warning(
            "quota",
            format!("{has}, and its quota is not visible before etcd 3.6"),
            "check etcd_server_quota_backend_bytes in the metrics of the member, or upgrade \
             it: if the quota is used up, no lock can be acquired",
        ),
        _ => Finding::fine("quota", format!("{has}, {known} is {} MB", limit >> 20)),
    }
}

/// Each acquisition and each release adds a revision, and nothing removes the old ones by default.
async fn compaction(session: &Session) -> Result<Finding, Error> {
    let latest = RangeRequest { key: session.marker.clone(), ..Default::default() };
    let (header, _) = session.ask(latest).await?;
    let first = keeps(session, 1).await?;
    let old = match header.revision.checked_sub(UNCOMPACTED) {
        Some(old) if old > 1 => keeps(session, old).await?,
        _ => false,
    };
    Ok(judge_compaction(header.revision, first, old))
}

/// Returns whether the cluster still has this revision.
async fn keeps(session: &Session, revision: i64) -> Result<bool, Error> {
    let request = RangeRequest { key: session.marker.clone(), revision, ..Default::default() };
    match session.ask(request).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.kind() == FailureKind::Compacted => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}

/// `first` is whether the first revision can still be read, and `old` whether the one can that is
/// [`UNCOMPACTED`] behind.
fn judge_compaction(revision: i64, first: bool, old: bool) -> Finding {
    let found = match (first, old) {
        (true, _) if revision < MANY => {
            return Finding::fine("compaction", format!("there are {revision} revisions"));
        }
        (true, _) => format!("{revision} revisions, none of which was ever compacted"),
        (false, true) => {
            format!("of {revision} revisions, the last {UNCOMPACTED} or more were not compacted")
        }
        (false, false) => {
            return Finding::fine(
                "compaction",
                format!("old revisions were compacted: there are fewer than {UNCOMPACTED}"),
            );
        }
    };
    Finding::warning(
        "compaction",
        found,
        "start the members with --auto-compaction-retention=1h: each lock and release adds \
         revisions, until the quota is used up",
    )
}

fn ttl(granted: Duration, asked: Duration) -> Finding {
    let found = format!("the session timeout is {granted:?}");
    match granted == asked {
        true => Finding::fine("session", found),
        false => Finding::warning(
            "session",
            format!("{found}, although {asked:?} was requested"),
            "set dlock.session_timeout to at least 1.5 times the members' --election-timeout",
        ),
    }
}

/// Returns the findings about this client's rights below the root, and about the root itself.
async fn root(session: &Session) -> Result<Vec<Finding>, Error> {
    let rights = match session.renew_epoch().await {
        Ok(()) => Finding::fine("rights", "this client may write and delete keys below the root"),
        Err(failure) if failure.kind() == FailureKind::NoSpace => return Ok(Vec::new()),
        Err(failure) => denied(failure)?,
    };
    let name = match go_mutex(session).await {
        Ok(found) => judge_root(found),
        Err(failure) => denied(failure)?,
    };
    Ok(vec![rights, name])
}

/// What the search for a mutex of a Go program has found below the root.
#[derive(Debug)]
enum Search {
    /// The mutex of this lease.
    Found(String),
    Nothing,
    /// There are more keys than the search reads.
    Unfinished,
}

async fn go_mutex(session: &Session) -> Result<Search, Failure> {
    let root = session.keys.root();
    let mut from = Bytes::from(format!("{root}0"));
    for _ in 0..PAGES {
        let request = RangeRequest {
            key: from,
            range_end: format!("{root}g").into(),
            limit: PAGE,
            keys_only: true,
            ..Default::default()
        };
        let (_, page) = session.ask(request).await?;
        let go = page.kvs.iter().find_map(|kv| {
            let rest = str::from_utf8(kv.key.strip_prefix(root.as_bytes())?).ok()?;
            matches!(Entry::parse(rest), Entry::Go(_)).then(|| rest.to_owned())
        });
        if let Some(lease) = go {
            return Ok(Search::Found(lease));
        }
        let Some(last) = page.kvs.last().filter(|_| page.more) else { return Ok(Search::Nothing) };
        // The first key behind it.
        from = [&last.key[..], &[0]].concat().into();
    }
    Ok(Search::Unfinished)
}

fn judge_root(found: Search) -> Finding {
    match found {
        Search::Nothing => {
            Finding::fine("root", "no lock of another program is named like the root")
        }
        Search::Found(lease) => Finding::wrong(
            "root",
            format!(
                "a mutex of a Go program is named like the root (lease {lease:.16}): it waits for \
                 all of dlock's locks"
            ),
            "give that mutex another name, or use another dlock.root",
        ),
        Search::Unfinished => Finding::warning(
            "root",
            "whether a mutex of a Go program is named like the root is not visible, behind too many \
             claims",
            "run the doctor while fewer locks are in use, or use a dlock.root that no other program \
             knows",
        ),
    }
}

fn denied(failure: Failure) -> Result<Finding, Error> {
    if failure.kind() != FailureKind::Denied {
        return Err(failure.into());
    }
    Ok(Finding::wrong(
        "rights",
        "this client may not read and write all keys below the root",
        "run etcdctl role grant-permission ROLE readwrite --prefix=true ROOT/",
    ))
}

#[cfg(test)]
mod tests {
    use dlock_core::Level;

    use super::*;
    use crate::client::Member;

    #[test]
    fn a_cluster_that_hides_its_state_is_never_fine() {
        let (mega, gone) = (1 << 20, false);
        let few = Error::new(ErrorKind::Unsupported, "--max-concurrent-streams");
        let few = MemberState { member: Member::default(), status: Err(few) };
        for (finding, level, remedy) in [
            (version(&few), Level::Warning, "--max-concurrent-streams"),
            (judge_size("a", mega, 8 * mega), Level::Fine, ""),
            (judge_size("a", 7 * mega, 8 * mega), Level::Warning, "defragment"),
            (judge_size("a", mega, 0), Level::Warning, "etcd_server_quota_backend_bytes"),
            (judge_size("a", 2000 * mega, 0), Level::Warning, "defragment"),
            (judge_compaction(99_999, true, gone), Level::Fine, ""),
            (judge_compaction(100_000, true, gone), Level::Warning, "--auto-compaction"),
            (judge_compaction(9_000_000, gone, gone), Level::Fine, ""),
            (judge_compaction(9_000_000, gone, true), Level::Warning, "--auto-compaction"),
            (judge_root(Search::Nothing), Level::Fine, ""),
            (judge_root(Search::Found("694d".to_owned())), Level::Wrong, "dlock.root"),
            (judge_root(Search::Unfinished), Level::Warning, "dlock.root"),
        ] {
            assert_eq!(finding.level, level, "{finding:?}");
            let says = finding.remedy.as_deref().unwrap_or_default();
            assert!(says.contains(remedy), "{finding:?}");
            assert_eq!(says.is_empty(), level == Level::Fine, "{finding:?}");
        }
    }
}
