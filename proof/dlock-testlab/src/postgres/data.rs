//! The data directory of a server at its first start.

use super::programs::Programs;
use crate::{
    Stop, Verdict,
    account::Account,
    home::Home,
    template::{DATA, Template},
};

/// The owner of the database, without the rights of an administrator.
pub(super) const USER: &str = "dlock";
pub(super) const DATABASE: &str = "dlock";
pub(super) const ADMIN: &str = "postgres";
pub(super) const PASSWORD: &str = "secret";

static TEMPLATE: Template = Template::new();

/// Creates a cluster with the users and the database. In single-user mode each statement is a line.
/// `TZ` is set because the search for the machine's time zone would take longer than all other
/// steps. Passwords are stored as MD5: with SCRAM, each connection computes 4096 hashes.
const INIT: &str = r#"
export TZ=UTC
"$1/initdb" -D "$2" -U "$3" -A md5 --pwfile=password -E UTF8 --locale=C --no-sync &&
"$1/postgres" --single -D "$2" -c fsync=off postgres <setup.sql
"#;

/// A killed server leaves its state file and the shared memory segment that the file names. With
/// the file, a later process with the same id would be mistaken for the server.
const REMAINS: &str = r#"
if [ -f data/postmaster.pid ]; then
  ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)"
  rm -f data/postmaster.pid
fi
"#;

/// Creates a home for the account that servers run as.
pub(super) fn home() -> Result<Home, Stop> {
    Home::new("dlock-postgres-", Account::instead_of_root(&["postgres"])?, REMAINS)
}

/// Copies the initial data into the home of a server.
pub(super) async fn fresh(home: &Home, programs: &Programs) -> Verdict {
    TEMPLATE.copy(home, || make(programs)).await
}

/// Copies the primary's data into the home of a standby.
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
