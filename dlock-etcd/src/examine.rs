//! The findings about the cluster, the session and the root.

use std::time::Duration;

use dlock_core::{Error, Finding};

use crate::{
    client::{AlarmRequest, AlarmType, Failure, FailureKind, RangeRequest},
    key::Entry,
    preflight::{MemberState, Members},
    session::Session,
};

/// The default quota of a database, which servers before 3.6 do not report.
const QUOTA: i64 = 2 << 30;

/// A cluster that was never compacted gets a finding from this revision on.
const MANY: i64 = 100_000;

/// Returns the findings.
pub(crate) async fn examine(session: &Session) -> Result<Vec<Finding>, Error> {
    let members = Members::ask(session).await?;
    let list = members.list.as_deref().unwrap_or_default();
    let mut findings: Vec<Finding> = list.iter().map(version).collect();
    findings.push(count(&members));
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

fn count(members: &Members) -> Finding {
    let remedy = "run three or five members, on separate machines";
    let Some(list) = &members.list else {
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
    let (quota, known) = match status.db_size_quota {
        0 => (QUOTA, "the default quota"),
        quota => (quota, "the quota"),
    };
    let found = format!(
        "the database of {} has {} MB, {known} is {} MB",
        seen.name(),
        status.db_size >> 20,
        quota >> 20
    );
    Some(match status.db_size > quota / 5 * 4 {
        true => Finding::warning(
            "quota",
            found,
            "compact and defragment, or raise --quota-backend-bytes: if the quota is used up, no \
             lock can be acquired",
        ),
        false => Finding::fine("quota", found),
    })
}

/// Each acquisition and each release adds a revision, and nothing removes the old ones by default.
async fn compaction(session: &Session) -> Result<Finding, Error> {
    let key = session.marker.clone();
    let first = RangeRequest { key, revision: 1, ..Default::default() };
    match session.ask(first).await {
        Err(failure) if failure.kind() == FailureKind::Compacted => {
            Ok(Finding::fine("compaction", "old revisions were compacted"))
        }
        Err(failure) => Err(failure.into()),
        Ok((header, _)) if header.revision < MANY => {
            Ok(Finding::fine("compaction", format!("there are {} revisions", header.revision)))
        }
        Ok((header, _)) => Ok(Finding::warning(
            "compaction",
            format!("{} revisions, none of which was ever compacted", header.revision),
            "start the members with --auto-compaction-retention=1h: each lock and release adds \
             revisions, until the quota is used up",
        )),
    }
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
    let epoch = session.epoch().await;
    let written = match epoch {
        Ok(epoch) => session.end_epoch(epoch).await.map(|_| ()),
        Err(failure) => Err(failure),
    };
    let rights = match written {
        Ok(()) => Finding::fine("rights", "this client may write and delete keys below the root"),
        Err(failure) if failure.kind() == FailureKind::NoSpace => return Ok(Vec::new()),
        Err(failure) => denied(failure)?,
    };
    let first = RangeRequest {
        key: format!("{}0", session.keys.root()).into(),
        range_end: format!("{}g", session.keys.root()).into(),
        limit: 1000,
        keys_only: true,
        ..Default::default()
    };
    let (_, page) = match session.ask(first).await {
        Ok(page) => page,
        Err(failure) => return Ok(vec![rights, denied(failure)?]),
    };
    let go = page.kvs.iter().find_map(|kv| {
        let rest = kv.key.strip_prefix(session.keys.root().as_bytes())?;
        let rest = str::from_utf8(rest).ok()?;
        matches!(Entry::parse(rest), Entry::Go(_)).then(|| rest.to_owned())
    });
    Ok(vec![
        rights,
        match go {
            None => Finding::fine("root", "no lock of another program is named like the root"),
            Some(lease) => Finding::wrong(
                "root",
                format!(
                    "a mutex of a Go program is named like the root (lease {lease:.16}): it \
                         waits for all of dlock's locks"
                ),
                "give that mutex another name, or use another dlock.root",
            ),
        },
    ])
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
