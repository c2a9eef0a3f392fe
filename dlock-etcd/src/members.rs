//! The members of the cluster, and what their versions mean for the guarantees.

use dlock_core::{Error, ErrorKind, Exclusion};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::{
    client::{FailureKind, Member, MemberListRequest, StatusResponse, dial},
    config::EtcdConfig,
    session::Session,
    version::Version,
};

/// The members, as the connected one lists them.
pub(crate) struct Members {
    /// `None` if this client may not read the list.
    pub(crate) list: Option<Vec<MemberState>>,
}

/// A member, with its state if it answers.
pub(crate) struct MemberState {
    pub(crate) member: Member,
    pub(crate) status: Result<StatusResponse, Error>,
}

impl MemberState {
    pub(crate) fn version(&self) -> Option<Version> {
        self.status.as_ref().ok().and_then(|status| Version::parse(&status.version))
    }
}

impl Members {
    /// Asks for the list, and then each member.
    ///
    /// # Errors
    /// `Unsupported` for a gRPC proxy.
    pub(crate) async fn ask(session: &Session, config: &EtcdConfig) -> Result<Self, Error> {
        let link = session.link().await?;
        let listed = match session.ask(MemberListRequest { linearizable: false }).await {
            Ok((_, listed)) => listed.members,
            Err(failure) if failure.kind() == FailureKind::Denied => {
                return Ok(Self { list: None });
            }
            Err(failure) => return Err(failure.into()),
        };
        let own = link.client.member_id();
        if !listed.iter().any(|member| member.id == own) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the endpoint is a gRPC proxy, which answers for leases and watches itself: give \
                 the endpoints of the members",
            ));
        }
        let asked = listed.into_iter().map(async |member| {
            let status = match member.id == own {
                true => Ok(link.status.clone()),
                false => status(&member, session, config).await,
            };
            MemberState { member, status }
        });
        Ok(Self { list: Some(join_all(asked).await) })
    }

    /// Returns the guarantee of mutual exclusion.
    pub(crate) fn exclusion(&self) -> Exclusion {
        let Some(list) = &self.list else { return Exclusion::Nothing };
        match list.iter().filter(|seen| !seen.member.is_learner).count() {
            ..=1 => Exclusion::Restart,
            _ if self.weakness().is_some() => Exclusion::Nothing,
            _ => Exclusion::Failover,
        }
    }

    /// Returns why the guarantee is weaker than that of the newest version, if it is.
    pub(crate) fn weakness(&self) -> Option<String> {
        let Some(list) = &self.list else {
            return Some("this client may not list the members: their versions are unknown".into());
        };
        let voters: Vec<_> = list.iter().filter(|seen| !seen.member.is_learner).collect();
        if voters.len() < 2 {
            return None;
        }
        voters.iter().find_map(|seen| match seen.version() {
            Some(version) if !version.revokes_living_leases() => None,
            Some(version) => Some(format!(
                "{} runs etcd {version}, whose old leaders may end leases that are renewed: \
                 upgrade to 3.4.31, 3.5.13 or later",
                seen.name(),
            )),
            None => Some(format!("the version of {} is unknown: it does not answer", seen.name())),
        })
    }
}

impl MemberState {
    /// Returns a name for people.
    pub(crate) fn name(&self) -> String {
        match self.member.name.as_str() {
            "" => format!("member {:x}", self.member.id),
            name => format!("member {name:.60}"),
        }
    }
}

async fn status(
    member: &Member,
    session: &Session,
    config: &EtcdConfig,
) -> Result<StatusResponse, Error> {
    let mut last = crate::error::no_answer();
    for url in &member.client_urls {
        let host = url.split_once("://").map_or(url.as_str(), |(_, host)| host);
        match dial(host, &config.access, Instant::now() + session.rhythm()).await {
            Ok((_, _, status)) => return Ok(status),
            Err(failure) => last = failure.into(),
        }
    }
    Err(last)
}
