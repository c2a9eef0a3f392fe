//! Java programs that are compiled once per process.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::programs::Compiler;
use crate::{Stop, home::Home};

const SOURCE: &str = "Main.java";

/// `$1` is the compiler, and `$2` the class path. The compiler runs only briefly, so Java's better
/// compilers would not pay off.
const COMPILE: &str = r#""$1" -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -J-XX:-UsePerfData \
    -proc:none -d . -cp "$2" Main.java"#;

/// The directory of each source's classes. They are never dropped: their watchdogs remove the
/// directories when the process ends.
static COMPILED: Mutex<BTreeMap<String, Arc<OnceCell<Home>>>> = Mutex::new(BTreeMap::new());

impl Compiler {
    /// Returns the directory with the classes of this source.
    pub(super) async fn compiled(&self, source: &str) -> Result<PathBuf, Stop> {
        let home = Arc::clone(COMPILED.lock().entry(source.to_owned()).or_default());
        let home = home.get_or_try_init(|| self.compile(source)).await?;
        Ok(home.path().to_owned())
    }

    async fn compile(&self, source: &str) -> Result<Home, Stop> {
        let home = Home::new("dlock-classes-", None, "")?;
        home.write(SOURCE, source)?;
        home.run(COMPILE, &[&self.javac.display().to_string(), &self.class_path]).await?;
        Ok(home)
    }
}
