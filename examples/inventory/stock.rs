//! The stock: a store that is not safe by itself.
//!
//! One small file holds how many items are left and, for act 3, the largest fencing token that
//! has written it: `left token`. A read is whole and a write is whole, but nothing keeps two
//! workers from reading the same number, as with an object store, a cache, or a table behind an
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
    /// The stock in this file.
    pub(crate) fn at(file: PathBuf) -> Self {
        Self { file }
    }

    /// How many items are left.
    pub(crate) fn read(&self) -> io::Result<u32> {
        Ok(self.load()?.0)
    }

    /// Writes how many are left. Whoever writes last wins.
    pub(crate) fn write(&self, left: u32) -> io::Result<()> {
        self.store(left, 0)
    }

    /// Writes how many are left, unless a holder with a newer token has written.
    ///
    /// This is all that a store has to offer for fencing: to compare one number and write in one
    /// step, as in `UPDATE stock SET left = ?, token = ? WHERE token <= ?`. Here the step is
    /// made one by a file lock that nobody holds longer than that; it could not be held while a
    /// worker thinks, if the stock were a server.
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
