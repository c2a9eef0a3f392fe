//! The check of the user's rights at a connect: each command that is needed later is tried.
//!
//! A script runs all of them on the keys of an unused name, and leaves nothing behind. Those keys
//! have the form of all keys, with the prefix of the user's names, so a right to such keys is
//! enough. In a cluster, each master is tried, since each has its own users. In a quorum, each
//! master is tried for the same reason. In the plain form without a prefix, no key is certain to be
//! like the keys of its names. There, a refusal of only the key proves nothing.

use std::sync::Arc;

use dlock_core::Error;
use redis::{RedisError, Value};

use crate::{
    config::RedisConfig,
    error::{self, ACL, Remedy, is_key_denial, remedy_of},
    keys::{self, Bucket},
    link::{
        Link,
        window::{Kind, Sending},
    },
    reply,
    scripts::{Call, Script},
    waiters::Waiters,
};

/// [`ACL`] for the plain form.
const ACL_PLAIN: &str = include_str!("acl_plain.txt");

/// The check, with its parameters.
pub(crate) struct Preflight {
    plain: bool,
    prefix: String,
    waiters: Option<Arc<Waiters>>,
    in_cluster: bool,
    script: Script,
}

impl Preflight {
    pub(crate) fn new(
        config: &RedisConfig,
        waiters: Option<Arc<Waiters>>,
        in_cluster: bool,
    ) -> Self {
        Self {
            plain: config.plain,
            prefix: config.prefix.clone(),
            waiters,
            in_cluster,
            script: Script::preflight(),
        }
    }

    /// Tries all commands on the server that has this bucket.
    ///
    /// # Errors
    /// `Config(Access)` if the user lacks a right, `Unsupported` if no user can have it.
    pub(crate) async fn check(&self, link: &Link, bucket: Bucket) -> Result<(), Error> {
        let keys = self.keys(bucket);
        let call = self.call(&keys, &keys, bucket);
        // As text, since the text of a script may have to be sent later as well.
        match link.send(&call.by_text(), &Sending::of(Kind::Acquire)).await {
            Ok(answer) => self.judge(&answer, |_| true)?,
            Err(error) if is_key_denial(&error.to_string()) => {
                return self.keys_denied(link, &keys, bucket, error).await;
            }
            Err(error) => return Err(self.explained(error)),
        }
        match link.send(call.by_digest(), &Sending::of(Kind::Acquire)).await {
            // Another client has just flushed the server's scripts.
            Err(error) if remedy_of(&error) != Remedy::SendText => {
                return Err(self.explained(error));
            }
            _ => {}
        }
        link.try_asking(bucket).await.map_err(|error| self.explained(error))
    }

    fn keys(&self, bucket: Bucket) -> Vec<String> {
        let number = rand::random();
        match self.plain {
            true => vec![keys::unused_plain(&self.prefix, number)],
            false => keys::unused(bucket, &self.prefix, number).into(),
        }
    }

    fn call(&self, declared: &[String], keys: &[String], bucket: Bucket) -> Call<'_> {
        let mut call = self.script.on(declared.len());
        for key in declared {
            call = call.arg(key);
        }
        let channel = self.waiters.as_ref().map(|waiters| match self.in_cluster {
            true => waiters.channel_of(bucket),
            false => waiters.channel().to_string(),
        });
        call.arg(channel.unwrap_or_default()).arg(keys.first())
    }

    /// Interprets the refusals within the script. `counts` selects those that matter.
    fn judge(&self, answer: &Value, counts: impl Fn(&str) -> bool) -> Result<(), Error> {
        let Value::Array(parts) = answer else { return Err(error::unreadable("a script", answer)) };
        let texts: Vec<_> =
            parts.iter().map(|part| reply::text(part).unwrap_or_default()).collect();
        let mut refused: Vec<(&str, &str)> = Vec::new();
        for pair in texts.chunks_exact(2) {
            let (command, why) = (pair[0].as_str(), pair[1].as_str());
            if counts(why) && !refused.iter().any(|(other, _)| *other == command) {
                refused.push((command, why));
            }
        }
        error::refused(&refused, &self.acl()).map_or(Ok(()), Err)
    }

    /// Handles a refusal of the keys, or of some of them.
    async fn keys_denied(
        &self,
        link: &Link,
        keys: &[String],
        bucket: Bucket,
        error: RedisError,
    ) -> Result<(), Error> {
        if self.plain && self.prefix.is_empty() {
            // The names may have other keys. Refusals that do not depend on a key still count.
            let answer = link
                .send(&self.call(&[], keys, bucket).by_text(), &Sending::of(Kind::Acquire))
                .await;
            let answer = answer.map_err(|error| self.explained(error))?;
            return self.judge(&answer, |why| !is_key_denial(why));
        }
        let mut denied = Vec::new();
        for key in keys {
            let got =
                link.send(redis::pipe().cmd("GET").arg(key), &Sending::of(Kind::Acquire)).await;
            if got.is_err_and(|error| is_key_denial(&error.to_string())) {
                denied.push(keys::without_probe(key));
            }
        }
        Err(match denied.is_empty() {
            true => self.explained(error),
            false => {
                error::rights(&format!("no permission for {}", denied.join(", ")), &self.acl())
            }
        })
    }

    fn explained(&self, error: RedisError) -> Error {
        error::explain_for(error, &self.acl())
    }

    /// Returns the ACL line that grants all needed rights.
    fn acl(&self) -> String {
        let prefix = keys::literal(&self.prefix);
        match (self.plain, prefix.is_empty()) {
            (false, true) => ACL.to_owned(),
            (false, false) => {
                let keys = format!("~dlock:*:{prefix}* ~{}", keys::TOKENS_PATTERN);
                ACL.replace("~dlock:*", &keys)
            }
            (true, _) => ACL_PLAIN.replace("~*", &format!("~{prefix}*")),
        }
    }
}
