//! The stock: a store that does not protect itself.
//!
//! One small file holds how many items are left and, for act 3, the largest fencing token that has
//! written it: `left token`. Each read and each write is atomic, but two workers may read the same
//! number before either writes. The same applies to an object store, a cache, or a table behind an
//! ORM.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
};

use dlock::{
    FencingToken,
    fencing::{Fence, StaleToken},
};
use tempfile::NamedTempFile;

#[derive(Clone, Debug)]
pub(crate) struct Stock {
    file: PathBuf,
}

impl Stock {
    /// Returns the stock in this file.
    pub(crate) fn at(file: PathBuf) -> Self {
        Self { file }
    }

    /// Returns how many items are left.
    pub(crate) fn read(&self) -> io::Result<u32> {
        Ok(self.load()?.0)
    }

    /// Writes how many are left. The last write wins.
    pub(crate) fn write(&self, left: u32) -> io::Result<()> {
        self.store(left, 0)
    }

    /// Writes how many are left, unless a holder with a newer token has written.
    ///
    /// Fencing needs only this from a store: it compares one number and writes in one step, as in
    /// `UPDATE stock SET left = ?, token = ? WHERE token <= ?`. Here a file lock, held only for
    /// this step, makes it atomic. A server would not let a worker hold such a lock while it
    /// thinks.
    pub(crate) fn write_fenced(
        &self,
        left: u32,
        token: FencingToken,
    ) -> io::Result<Result<(), StaleToken>> {
        let gate = File::create(self.file.with_extension("gate"))?;
        #[expect(clippy::incompatible_msrv, reason = "the feature sqlite needs a newer compiler")]
        gate.lock()?;
        let seen = FencingToken::new(self.load()?.1);
        let fence = seen.map_or_else(|_| Fence::new(), Fence::starting_at);
        if let Err(stale) = fence.admit(token) {
            return Ok(Err(stale));
        }
        self.store(left, token.get()).map(Ok)
    }

    fn load(&self) -> io::Result<(u32, u64)> {
        let text = fs::read_to_string(&self.file)?;
        text.split_once(' ')
            .and_then(|(left, token)| Some((left.parse().ok()?, token.parse().ok()?)))
            .ok_or_else(|| io::Error::other(format!("the stock can't be read: {text:?}")))
    }

    fn store(&self, left: u32, token: u64) -> io::Result<()> {
        let dir = self.file.parent().ok_or_else(|| io::Error::other("the stock has no folder"))?;
        let mut new = NamedTempFile::new_in(dir)?;
        write!(new, "{left} {token}")?;
        new.persist(&self.file)?;
        Ok(())
    }
}
