//! Java programs that are compiled once in a process.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::programs::Compiler;
use crate::{Stop, home::Home};

const SOURCE: &str = "Main.java";

/// It lives for a moment: better compilers of its own code would not pay. What follows is the
/// class path.
const COMPILE: &str = r#""$1" -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -J-XX:-UsePerfData \
    -proc:none -d . -cp "$2" Main.java"#;

/// The directory of each source's classes. Nobody drops them: their watchdogs remove them when the
/// process ends.
static COMPILED: Mutex<BTreeMap<String, Arc<OnceCell<Home>>>> = Mutex::new(BTreeMap::new());

impl Compiler {
    /// The directory with the classes of this source.
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
