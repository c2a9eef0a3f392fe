//! What a server keeps: copied, put back, and lost.

use std::fs;

use super::{Persistence, RedisServer};
use crate::{Snapshot, Stop, Verdict, home::Home};

/// What a server writes into its directory: an image, and a log in a directory of its own.
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
    /// Copies what it has at this moment, in which it stands still, as into a backup; also one that
    /// keeps nothing over a restart. Dropped before it is done, this may leave the server
    /// [paused](Self::pause).
    ///
    /// # Errors
    /// When it can't be copied, or the server was killed.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        let home = Home::new("dlock-snapshot-", None, "")?;
        let keeps = self.options().persistence != Persistence::None;
        if !keeps {
            self.command(&["SAVE"]).await?.ok()?;
            let copied = Snapshot::make(home, self.directory(), TAKE).await;
            self.forget_image()?;
            return copied;
        }
        // Its log has all that it acknowledged.
        self.pause()?;
        let copied = Snapshot::make(home, self.directory(), TAKE).await;
        self.resume()?;
        copied
    }

    /// Kills it if it runs, and starts it again on the same port with what it had at the time of the
    /// snapshot, as from an old backup.
    ///
    /// # Errors
    /// As for [`Self::restart`], and when the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.lose()?;
        snapshot.restore(self.directory(), PUT).await?;
        self.restart().await?;
        match self.options().persistence {
            Persistence::None => self.forget_image(),
            Persistence::AofAlways => Ok(()),
        }
    }

    /// Kills it if it runs, and starts it again on the same port with nothing of what it had, also
    /// if it [keeps](Persistence) that.
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
