//! The check at a connect: the members of the cluster, and what their number means for the guarantees.
//! For the [findings](crate::examine), each member is asked for its status.

use dlock_core::{Error, Guarantees, session::guarantees};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::{
    client::{Failure, FailureKind, Member, MemberListRequest, StatusResponse, dial},
    connect::{Version, race_hosts},
    session::Session,
};

/// Checks that the members can store locks, and returns the guarantees. A client that may not list
/// the members can't know that there are several.
pub(crate) async fn preflight(session: &Session) -> Result<Guarantees, Error> {
    let members = members(session).await?.unwrap_or_default();
    Ok(guarantees(members.iter().filter(|member| !member.is_learner).count()))
}

/// Returns the members, as the connected one lists them. `None` if this client may not read the list.
///
/// # Errors
/// `Unsupported` for a gRPC proxy.
async fn members(session: &Session) -> Result<Option<Vec<Member>>, Error> {
    let own = session.link().await?.client.member_id();
    let listed = match session.ask(MemberListRequest { linearizable: false }).await {
        Ok((_, listed)) => listed.members,
        Err(failure) if failure.kind() == FailureKind::Denied => return Ok(None),
        Err(failure) => return Err(failure.into()),
    };
    match listed.iter().any(|member| member.id == own) {
        true => Ok(Some(listed)),
        false => Err(Failure::proxy().into()),
    }
}

/// A member, with its state if it answers.
pub(crate) struct MemberState {
    pub(crate) member: Member,
    pub(crate) status: Result<StatusResponse, Error>,
}

impl MemberState {
    /// Asks for the list of the members, and then each member. `None` if this client may not read the
    /// list.
    ///
    /// # Errors
    /// `Unsupported` for a gRPC proxy.
    pub(crate) async fn of_all(session: &Session) -> Result<Option<Vec<Self>>, Error> {
        let Some(members) = members(session).await? else { return Ok(None) };
        let link = session.link().await?;
        let asked = members.into_iter().map(async |member| {
            let status = match member.id == link.client.member_id() {
                true => Ok(link.status.clone()),
                false => status(&member, session).await,
            };
            Self { member, status }
        });
        Ok(Some(join_all(asked).await))
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.status.as_ref().ok().and_then(|status| Version::parse(&status.version))
    }

    /// Returns a name for people.
    pub(crate) fn name(&self) -> String {
        match self.member.name.as_str() {
            "" => format!("member {:x}", self.member.id),
            name => format!("member {name:.60}"),
        }
    }
}

async fn status(member: &Member, session: &Session) -> Result<StatusResponse, Error> {
    let (access, each) = (&session.config.access, session.heartbeat_interval());
    let host = |url: &String| match url.split_once("://") {
        Some((_, host)) => host.to_owned(),
        None => url.clone(),
    };
    let hosts = member.client_urls.iter().map(host).collect();
    race_hosts(hosts, each, |host, at| async move {
        let (_, _, status) = dial(&host, at, access, Instant::now() + each).await?;
        Ok(status)
    })
    .await
}
