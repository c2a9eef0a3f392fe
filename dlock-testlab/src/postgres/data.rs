//! What a server finds in its data directory at its start.

use super::programs::Programs;
use crate::{
    Stop, Verdict,
    account::Account,
    home::Home,
    template::{DATA, Template},
};

/// The owner of the database, which is no administrator.
pub(super) const USER: &str = "dlock";
pub(super) const DATABASE: &str = "dlock";
pub(super) const ADMIN: &str = "postgres";
pub(super) const PASSWORD: &str = "secret";

static TEMPLATE: Template = Template::new();

/// Makes a cluster with the users and the database, which in single mode takes a line for each
/// statement. To find out the time zone of the machine would take longer than all else. Passwords
/// are kept as MD5: for SCRAM, each connection hashes them 4096 times over.
const INIT: &str = r#"
export TZ=UTC
"$1/initdb" -D "$2" -U "$3" -A md5 --pwfile=password -E UTF8 --locale=C --no-sync &&
"$1/postgres" --single -D "$2" -c fsync=off postgres <setup.sql
"#;

/// Killed, a server leaves its state, in which a later process with its id would be mistaken for
/// it, and the piece of shared memory that the state names.
const REMAINS: &str = r#"
if [ -f data/postmaster.pid ]; then
  ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)"
  rm -f data/postmaster.pid
fi
"#;

/// A home of the account that servers run as.
pub(super) fn home() -> Result<Home, Stop> {
    Home::new("dlock-postgres-", Account::instead_of_root(&["postgres"])?, REMAINS)
}

/// Gives a server the data that all start with.
pub(super) async fn fresh(home: &Home, programs: &Programs) -> Verdict {
    TEMPLATE.copy(home, || make(programs)).await
}

/// Gives a standby the data of its primary.
pub(super) async fn copy(home: &Home, programs: &Programs, primary: &str) -> Verdict {
    let program = programs.path("pg_basebackup")?.display().to_string();
    let backup = r#""$1" -D "$2" -d "$3" --write-recovery-conf --checkpoint=fast --no-sync"#;
    home.run(backup, &[&program, DATA, primary]).await
}

async fn make(programs: &Programs) -> Result<Home, Stop> {
    let home = home()?;
    home.write("password", PASSWORD)?;
    let setup = [
        "set password_encryption = 'md5'".to_owned(),
        format!("create role {USER} login password '{PASSWORD}'"),
        format!("create database {DATABASE} owner {USER}"),
    ];
    home.write("setup.sql", &(setup.join("\n") + "\n"))?;
    home.run(INIT, &[&programs.bin().display().to_string(), DATA, ADMIN]).await?;
    Ok(home)
}
