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
pub(super) const ADMIN: &str = "root";
pub(super) const PASSWORD: &str = "secret";

/// A small log makes copies fast.
pub(super) const QUICK: [&str; 2] = ["innodb_flush_method=nosync", "innodb_log_file_size=16M"];

static TEMPLATE: Template = Template::new();

/// Creates the system tables, and then the users and the database. Temporary tables go to a
/// separate directory: a starting server deletes all temporary tables in a shared one.
const INIT: &str = r#"
mkdir tmp &&
"$1" --no-defaults --datadir="$PWD/$3" --tmpdir="$PWD/tmp" --skip-test-db \
  --auth-root-authentication-method=normal --skip-name-resolve --"$4" --"$5" &&
"$2" --no-defaults --datadir="$PWD/$3" --tmpdir="$PWD/tmp" --bootstrap --"$4" --"$5" <setup.sql
"#;

/// Creates a home for the account that servers run as.
pub(super) fn home() -> Result<Home, Stop> {
    Home::new("dlock-mariadb-", Account::instead_of_root(&["mysql"])?, "")
}

/// Copies the initial data into the home of a server.
pub(super) async fn fresh(home: &Home, programs: &Programs) -> Verdict {
    TEMPLATE.copy(home, || make(programs)).await
}

async fn make(programs: &Programs) -> Result<Home, Stop> {
    let home = home()?;
    let setup = [
        "flush privileges;".to_owned(),
        format!("create or replace user {ADMIN}@127.0.0.1 identified by '{PASSWORD}';"),
        format!("grant all on *.* to {ADMIN}@127.0.0.1 with grant option;"),
        format!("create database {DATABASE};"),
        format!("create user {USER}@'%' identified by '{PASSWORD}';"),
        format!("grant all on {DATABASE}.* to {USER}@'%';"),
    ];
    home.write("setup.sql", &(setup.join("\n") + "\n"))?;
    let (install, server) = (programs.install.display(), programs.server.display());
    let [quick, small] = QUICK;
    home.run(INIT, &[&install.to_string(), &server.to_string(), DATA, quick, small]).await?;
    Ok(home)
}
