//! The check at a connect: the members of the cluster, their versions, and what their number means
//! for the guarantees.

use dlock_core::{Error, Guarantees, session::guarantees};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::{
    client::{Failure, FailureKind, Member, MemberListRequest, StatusResponse, dial},
    connect::Version,
    session::Session,
};

/// Checks that the members can store locks, and returns the guarantees.
pub(crate) async fn preflight(session: &Session) -> Result<Guarantees, Error> {
    Ok(guarantees(Members::ask(session).await?.voters()))
}

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
    pub(crate) async fn ask(session: &Session) -> Result<Self, Error> {
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
            return Err(Failure::proxy().into());
        }
        let asked = listed.into_iter().map(async |member| {
            let status = match member.id == own {
                true => Ok(link.status.clone()),
                false => status(&member, session).await,
            };
            MemberState { member, status }
        });
        Ok(Self { list: Some(join_all(asked).await) })
    }

    /// Returns the number of voters. A client that may not list the members can't know that there are
    /// several.
    fn voters(&self) -> usize {
        self.list.iter().flatten().filter(|seen| !seen.member.is_learner).count()
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

async fn status(member: &Member, session: &Session) -> Result<StatusResponse, Error> {
    let mut last = crate::error::no_answer();
    for url in &member.client_urls {
        let host = url.split_once("://").map_or(url.as_str(), |(_, host)| host);
        match dial(
            host,
            None,
            &session.config.access,
            Instant::now() + session.heartbeat_interval(),
        )
        .await
        {
            Ok((_, _, status)) => return Ok(status),
            Err(failure) => last = failure.into(),
        }
    }
    Err(last)
}
