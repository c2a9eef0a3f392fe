//! The names that are held or waited for, read in pages as in [`inspect`](crate::inspect).

use dlock_core::{Error, LockName};

use crate::{client::RangeRequest, key::past, session::Session};

impl Session {
    /// Returns the names that begin with `prefix` and are held or waited for, at most `limit`.
    pub(crate) async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let (key, range_end) = self.keys.starting_with(prefix);
        let mut read = RangeRequest { key, range_end, keys_only: true, ..Default::default() };
        let mut names: Vec<LockName> = Vec::new();
        loop {
            let (_, page) = self.get(read.clone()).await?;
            for kv in &page.kvs {
                let name = str::from_utf8(&kv.key).ok().and_then(|key| self.keys.name_of(key));
                // The keys of a name follow each other.
                if let Some(name) = name.filter(|name| names.last() != Some(name)) {
                    names.push(name);
                }
            }
            let Some(last) = page.kvs.last().filter(|_| page.more && names.len() < limit) else {
                names.truncate(limit);
                return Ok(names);
            };
            read.key = past(&last.key);
        }
    }
}
