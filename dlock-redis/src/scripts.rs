//! The scripts, one for each verb. The head of each file states its arguments and results.
//!
//! `lock.lua` has the rules of the lock, and is included in the scripts that change a queue. The
//! server runs each script atomically. So the rules need no other order than "read first, then
//! write": a key of a wrong type then fails the script before it has changed anything.

use std::sync::{Arc, LazyLock};

use dlock_core::{
    AcquireRequest, ClaimId, ConfigIssue, Error, FencingToken, LockName, Mode, Renewal, SendFlag,
};
use redis::{Cmd, Pipeline, ToRedisArgs};

use crate::{
    keys::Keys,
    link::window::{Kind, Role, Sending},
    reply::{fails_if_busy, lease_argument, millis},
    unanswered::Unanswered,
};

/// The largest token for RAISE_TOKENS. Numbers in a script are exact to 2^53, which microseconds reach
/// in the year 2255, and the tokens above it need some room.
const LARGEST_RAISED_TO: u64 = (1 << 53) - (1 << 40);

/// A Lua script and the digest by which the server caches it.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    text: Arc<str>,
    digest: Arc<str>,
    kind: Kind,
}

/// A claim in a RENEW.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewing<'a> {
    pub(crate) claim: ClaimId,
    pub(crate) name: &'a LockName,
    /// The mode from now on.
    pub(crate) mode: Mode,
    /// As [`lease_argument`] writes it.
    pub(crate) lease: i64,
    pub(crate) grant: KnownGrant,
}

/// What the client of a renewal knows about the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownGrant {
    /// Plain commands granted it with this token: see [`take`](crate::take).
    Taken(FencingToken),
    /// Another request granted it.
    Other,
    /// The claim waits.
    Waits,
    /// This client has not acquired it.
    Unknown,
}

impl<'a> Renewing<'a> {
    /// A poll of a claim that waits, or that plain commands have granted with this token.
    pub(crate) fn waiting(request: &'a AcquireRequest, taken: Option<FencingToken>) -> Self {
        let AcquireRequest { claim, name, mode, lease, .. } = request;
        let lease = lease_argument(*lease, false);
        let grant = taken.map_or(KnownGrant::Waits, KnownGrant::Taken);
        Self { claim: *claim, name, mode: *mode, lease, grant }
    }
}

/// The state of the claims in a RENEW, as far as their client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Holds,
    Waits,
}

/// All scripts.
#[derive(Clone, Debug)]
pub(crate) struct Scripts {
    acquire: Script,
    pub(crate) acquire_all: Script,
    release: Script,
    release_alone: Script,
    pub(crate) release_plain: Script,
    renew_exclusive: Script,
    renew: Script,
    inspect: Script,
    pub(crate) quorum_token: Script,
    raise_tokens: Script,
    pub(crate) acquire_plain: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        /// The texts are the same for all connections, so they are made and hashed once.
        static PREPARED: LazyLock<Scripts> = LazyLock::new(Scripts::prepare);
        PREPARED.clone()
    }

    fn prepare() -> Self {
        const LOCK: &str = include_str!("scripts/lock.lua");
        const FORMATS: &str = include_str!("scripts/formats.lua");
        // The rules are inserted as text, because the server has no libraries of scripts before
        // version 7.
        let script = |kind, text: &str| {
            Script::new(text.replace("--%lock\n", LOCK).replace("--%formats\n", FORMATS), kind)
        };
        Self {
            acquire: script(Kind::Acquire, include_str!("scripts/acquire.lua")),
            acquire_all: script(Kind::Acquire, include_str!("scripts/acquire_all.lua")),
            release: script(Kind::Release, include_str!("scripts/release.lua")),
            release_alone: script(Kind::Release, include_str!("scripts/release_alone.lua")),
            release_plain: script(Kind::Release, include_str!("scripts/release_plain.lua")),
            renew_exclusive: script(Kind::Renewal, include_str!("scripts/renew_exclusive.lua")),
            renew: script(Kind::Renewal, include_str!("scripts/renew.lua")),
            inspect: script(Kind::Acquire, include_str!("scripts/inspect.lua")),
            quorum_token: script(Kind::Release, include_str!("scripts/quorum_token.lua")),
            raise_tokens: script(Kind::Acquire, include_str!("scripts/raise_tokens.lua")),
            acquire_plain: script(Kind::Acquire, include_str!("scripts/acquire_plain.lua")),
        }
    }

    /// ACQUIRE for this claim. A message on this channel announces a later grant. The token is the
    /// proposed one or larger. `is_unknown`: a [`take`](crate::take) may have written the holder's key.
    pub(crate) fn acquire(
        &self,
        request: &AcquireRequest,
        channel: Option<&str>,
        proposal: u64,
        is_unknown: bool,
    ) -> Call<'_> {
        let call = self.acquire.on(Keys::COUNT).keys(&Keys::of(&request.name));
        let call = call.request(request, channel, is_unknown).arg(proposal);
        // Without a note there is no such argument, which saves bytes of each request.
        match &request.note {
            Some(note) => call.arg(note.as_str()),
            None => call,
        }
    }

    /// RELEASE for this claim.
    pub(crate) fn release(&self, name: &LockName, claim: ClaimId, used: u32) -> Call<'_> {
        let call = self.release.on(Keys::COUNT).keys(&Keys::of(name));
        call.arg(claim.to_string()).arg(used)
    }

    /// RELEASE_ALONE for this claim.
    pub(crate) fn release_alone(&self, name: &LockName, claim: ClaimId) -> Call<'_> {
        self.release_alone.on(1).arg(Keys::of(name).holder()).arg(claim.to_string())
    }

    /// INSPECT for this name.
    pub(crate) fn inspect(&self, name: &LockName) -> Call<'_> {
        self.inspect.on(Keys::COUNT).keys(&Keys::of(name))
    }

    /// RENEW_EXCLUSIVE for these claims, on these keys. Their names are in one slot. The second value
    /// is the token of a grant by plain commands.
    pub(crate) fn renew_exclusive(
        &self,
        keys: &[&str],
        renewals: &[(&Renewal, Option<FencingToken>)],
    ) -> Call<'_> {
        let mut call = self.renew_exclusive.on(keys.len()).arg(keys);
        for (renewal, taken) in renewals {
            call = call
                .arg(renewal.claim.id.to_string())
                .arg(lease_argument(renewal.lease, renewal.is_last));
            call = match taken {
                Some(token) => call.arg(format!("-{token}")),
                None => call.arg(renewal.token.map_or(0, FencingToken::get)),
            };
        }
        call
    }

    /// RENEW for these claims. Their names are in one slot. As far as this client knows, either all
    /// of them wait, or all hold their locks.
    pub(crate) fn renew(&self, claims: &[Renewing<'_>], phase: Phase) -> Call<'_> {
        let mut call = self.renew.on(Keys::COUNT * claims.len());
        for Renewing { name, .. } in claims {
            call = call.keys(&Keys::of(name));
        }
        for Renewing { claim, mode, lease, grant, .. } in claims {
            call = call.arg(claim.to_string()).arg(*lease).arg(mode.weight()).arg(mode.capacity());
            call = match grant {
                KnownGrant::Taken(token) => call.arg(token.get()),
                KnownGrant::Other => call.arg(0),
                KnownGrant::Waits => call.arg(-1),
                KnownGrant::Unknown => call.arg(-2),
            };
        }
        // RENEW of a waiting claim may grant it the lock. So the restart guard refuses it, while the
        // renewal of a held claim passes and grants nothing to others.
        call.sending.role = Role::Renews;
        if phase == Phase::Waits {
            call.sending = Sending::of(Kind::Poll);
            call.sending.role = Role::Grants;
        }
        call
    }

    /// RAISE_TOKENS for the bucket of this name.
    ///
    /// # Errors
    /// `Config(Token)` for a token beyond the numbers that scripts count with exactly.
    pub(crate) fn raise_tokens(
        &self,
        name: &LockName,
        above: FencingToken,
    ) -> Result<Call<'_>, Error> {
        if above.get() > LARGEST_RAISED_TO {
            return Err(Error::config(
                ConfigIssue::Token,
                format!(
                    "tokens can't be raised above {above}, because Redis does not count exactly \
                     that far: use at most {LARGEST_RAISED_TO}"
                ),
            ));
        }
        Ok(self.raise_tokens.on(1).arg(Keys::of(name).tokens()).arg(above.get()))
    }
}

impl Script {
    fn new(text: String, kind: Kind) -> Self {
        // Comments and indentation would be sent and hashed with every EVAL. So comments in the
        // scripts cost nothing, but no string in them may contain two dashes.
        let text: Vec<&str> = text
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default().trim())
            .filter(|line| !line.is_empty())
            .collect();
        let text = text.join("\n");
        let digest = sha1_smol::Sha1::from(&text).hexdigest();
        Self { text: text.into(), digest: digest.into(), kind }
    }

    /// Returns the script that checks the rights: see [`preflight`](crate::preflight).
    pub(crate) fn preflight() -> Self {
        Self::new(include_str!("scripts/preflight.lua").to_owned(), Kind::Acquire)
    }

    /// Returns the call of this script by its digest, with this number of keys.
    pub(crate) fn on(&self, keys: usize) -> Call<'_> {
        // About the size that a verb on one name needs, so that one allocation is enough.
        let mut command = Cmd::with_capacity(keys + 12, 64 * keys + 192);
        command.arg("EVALSHA").arg(&*self.digest).arg(keys);
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command).ignore_errors();
        Call { script: self, sending: Sending::of(self.kind), commands }
    }
}

/// A script with its keys and arguments.
///
/// The driver's own type for this is not used: if one master of a cluster does not know a script,
/// the driver loads it on every master, and fails if one of them is down. Here the text is sent
/// only to the master that has the keys.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    script: &'a Script,
    sending: Sending<'a>,
    /// One command, by the digest.
    commands: Pipeline,
}

impl<'a> Call<'a> {
    /// Adds all five keys of a name.
    pub(crate) fn keys(mut self, keys: &Keys) -> Self {
        for key in keys.all() {
            self.commands.arg(key);
        }
        self
    }

    /// Adds one key, or one argument.
    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.commands.arg(argument);
        self
    }

    /// Adds the arguments of an acquire, with the channel for the message about a later grant.
    pub(crate) fn request(
        self,
        request: &AcquireRequest,
        channel: Option<&str>,
        is_unknown: bool,
    ) -> Self {
        self.arg(request.claim.to_string())
            .arg(millis(request.lease))
            .arg(request.mode.weight())
            .arg(request.mode.capacity())
            .arg(request.tokens)
            .arg(fails_if_busy(request.queue) + 2 * u8::from(is_unknown))
            .arg(channel.unwrap_or_default())
    }

    /// Marks a call that takes locks, or positions in queues, for these claims. The link adds the
    /// deadline as the last argument.
    pub(crate) const fn acquiring(
        mut self,
        unanswered: &'a Unanswered,
        requests: &'a [AcquireRequest],
    ) -> Self {
        self.sending.role = Role::Acquires(unanswered, requests);
        self
    }

    /// Marks a call that its caller may give up until it is sent.
    pub(crate) const fn unsent(mut self, flag: &'a SendFlag) -> Self {
        self.sending.flag = Some(flag);
        self
    }

    /// Marks a call that releases or cancels this claim.
    pub(crate) const fn releasing(mut self, unanswered: &'a Unanswered, claim: ClaimId) -> Self {
        self.sending.role = Role::Releases(unanswered, claim);
        self
    }

    pub(crate) const fn sending(&self) -> &Sending<'a> {
        &self.sending
    }

    /// Returns the call by digest.
    pub(crate) const fn by_digest(&self) -> &Pipeline {
        &self.commands
    }

    /// Returns the call with the text, for a server that does not know the digest.
    pub(crate) fn by_text(&self) -> Pipeline {
        let mut commands = redis::pipe();
        commands.cmd("EVAL").arg(&*self.script.text).ignore_errors();
        // The same arguments, without the two words `EVALSHA` and the digest.
        for argument in self.commands.cmd_iter().flat_map(Cmd::args_iter).skip(2) {
            if let redis::Arg::Simple(argument) = argument {
                commands.arg(argument);
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a script calls the rules of the lock, which are defined in each script that
    /// includes them. The definition of `acquire` counts as a call.
    fn can_grant(text: &str) -> bool {
        let rules = include_str!("scripts/lock.lua").lines().count();
        let own = text.lines().count() > rules / 2;
        let calls = text.matches("promote(s").count() + text.matches("acquire(").count();
        own && calls > include_str!("scripts/lock.lua").matches("promote(s").count() + 1
    }

    #[test]
    fn the_restart_guard_knows_every_script_that_can_grant() {
        let scripts = Scripts::new();
        let (id, lease) = (ClaimId::random(), std::time::Duration::from_secs(1));
        let (unanswered, name) = (Unanswered::default(), LockName::new("a").unwrap());
        let request = AcquireRequest::new(name.clone(), Mode::Exclusive, lease);
        let requests = std::slice::from_ref(&request);
        let renewing = [Renewing::waiting(&request, None)];
        let raise_tokens = scripts.raise_tokens(&name, FencingToken::new(1).unwrap()).unwrap();
        let (refused, frozen, others) = (
            [
                scripts.acquire(&request, None, 0, false).acquiring(&unanswered, requests),
                scripts.acquire_all.on(0).acquiring(&unanswered, requests),
                scripts.renew(&renewing, Phase::Waits),
            ],
            [
                scripts.release(&name, id, 0).releasing(&unanswered, id),
                scripts.renew(&renewing, Phase::Holds),
            ],
            [
                raise_tokens,
                scripts.release_alone(&name, id).releasing(&unanswered, id),
                scripts.quorum_token.on(0),
                scripts.inspect(&name),
                scripts.renew_exclusive.on(0),
            ],
        );
        for call in refused {
            assert!(matches!(call.sending.role, Role::Grants | Role::Acquires(..)));
            assert!(can_grant(&call.script.text), "{}", call.script.text);
        }
        for call in frozen {
            assert!(matches!(call.sending.role, Role::Renews | Role::Releases(..)));
            assert!(can_grant(&call.script.text), "{}", call.script.text);
            let frozen = call.script.text.lines().find(|line| line.contains("frozen="));
            let reads = |line: &str| line.starts_with("local frozen=") && line.contains("ARGV");
            assert!(frozen.is_some_and(reads), "{frozen:?}");
        }
        for call in others {
            assert!(!can_grant(&call.script.text), "{}", call.script.text);
        }
    }
}
