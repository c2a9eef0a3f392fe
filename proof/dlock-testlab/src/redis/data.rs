//! The data of a server: copies, restores and removes it.

use std::fs;

use super::{Persistence, RedisServer};
use crate::{Snapshot, Stop, Verdict, home::Home};

/// The files that a server writes into its directory: an image, and a log in a subdirectory.
const IMAGE: &str = "dump.rdb";
const LOG: &str = "appendonlydir";

const TAKE: &str = r#"
mkdir data || exit
for one in dump.rdb appendonlydir; do
  if [ -e "$1/$one" ]; then cp -Rp -- "$1/$one" data || exit; fi
done
"#;

const PUT: &str = r#"cp -Rp data/. "$1""#;

impl RedisServer {
    /// Pauses the server and copies the data that it has at this moment, as a backup would. This
    /// works too for a server without persistence. If the future is dropped before it completes,
    /// the server may stay [paused](Self::pause).
    ///
    /// # Errors
    /// If the data can't be copied, or the server was killed.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        let home = Home::new("dlock-snapshot-", None, "")?;
        let keeps = self.options().persistence != Persistence::None;
        if !keeps {
            self.command(&["SAVE"]).await?.ok()?;
            let copied = Snapshot::make(home, self.directory(), TAKE).await;
            self.forget_image()?;
            return copied;
        }
        // The log contains every write that the server acknowledged.
        self.pause()?;
        let copied = Snapshot::make(home, self.directory(), TAKE).await;
        self.resume()?;
        copied
    }

    /// Kills the server if it runs, and restarts it on the same port with the data of the snapshot,
    /// as from an old backup.
    ///
    /// # Errors
    /// As for [`Self::restart`], and if the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.lose()?;
        snapshot.restore(self.directory(), PUT).await?;
        self.restart().await?;
        match self.options().persistence {
            Persistence::None => self.forget_image(),
            Persistence::AofAlways => Ok(()),
        }
    }

    /// Kills the server if it runs, and restarts it on the same port without its data, also if it
    /// [persists](Persistence) its data.
    ///
    /// # Errors
    /// As for [`Self::restart`].
    pub async fn restart_empty(&self) -> Verdict {
        self.lose()?;
        self.restart().await
    }

    fn lose(&self) -> Verdict {
        self.kill();
        self.forget_image()?;
        let log = self.directory().join(LOG);
        if log.exists() {
            fs::remove_dir_all(log)?;
        }
        Ok(())
    }

    fn forget_image(&self) -> Verdict {
        let image = self.directory().join(IMAGE);
        if image.exists() {
            fs::remove_file(image)?;
        }
        Ok(())
    }
}
