//! The statements of the guide's chapter on least privilege are sufficient, and grant no other
//! rights.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
    time::Duration,
};

use dlock_testlab::{
    Stop, Verdict,
    etcd::{self, EtcdServer},
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{Options, RedisCluster, RedisMasters, RedisSentinel, RedisServer, Reply, Resp},
    run_test,
    zookeeper::{self, JavaProgram, ZooKeeperServer},
};
use dlock_tests::{Text, blocks, root};

use crate::support::{Dlock, HOLD, Running, went};

/// ZooKeeper's own shell.
const SHELL: &str = "class Main {\n    public static void main(String[] args) throws Exception {\n        \
                     org.apache.zookeeper.ZooKeeperMain.main(args);\n    }\n}\n";

/// The blocks of this language below a heading of the chapter.
fn written(heading: &str, language: &str) -> Vec<String> {
    blocks(&Text::read(root(), "docs/src/threat-model.md").content, heading, language)
}

/// Longer than any test takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(240);

/// Runs a test that talks to the command, which blocks, and to servers.
fn run(store: &str, test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    run_test(store, runtime.unwrap(), LONG, test);
}

/// Acquires, waits, inspects, releases and examines. `list` states whether the store can list
/// names.
fn serves(url: &str, list: bool) {
    let dlock = Dlock::on(url.to_owned());
    let held = dlock.hold(&["--name", "a"], HOLD);
    let args = ["run", "-n", "a", "-v", "--json", "--", "echo", "ran"];
    let mut waiting = Running::start(dlock.command(&args));
    let told = waiting.complaint();
    assert!(told.contains("\"waiting\""), "{url}: {told}");
    let seen = dlock.inspect("a");
    assert_eq!(seen["holders"].as_array().unwrap().len(), 1, "{url}: {seen}");
    if list {
        assert!(dlock.out(&["list"]).starts_with("a: held by 1 ("), "{url}");
    }
    assert_eq!(held.finish().code, Some(0), "{url}");
    let went = waiting.finish();
    assert_eq!((went.code, went.out.as_str()), (Some(0), "ran\n"), "{url}: {went:?}");
    let went = dlock.went(&["doctor"]);
    assert_eq!(went.code, Some(0), "{url}: {went:?}");
}

/// Fails unless the user can't use locks.
fn refused(url: &str) {
    let went = Dlock::on(url.to_owned()).went(&["doctor"]);
    assert_eq!(went.code, Some(1), "{url}: {went:?}");
    assert!(went.out.contains("wrong ") && went.out.contains(" -> "), "{url}: {went:?}");
}

/// Returns the SQL without its last statement, and the last statement.
fn split(sql: &str) -> (&str, &str) {
    let sql = sql.trim_end();
    sql.rsplit_once('\n').unwrap_or(("", sql))
}

#[test]
fn the_grants_for_postgresql_are_enough_and_no_more() {
    run("postgres", async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        let forms = ["", "dlock.advisory=true", "dlock.plain=row", "dlock.plain=version"];
        for form in forms {
            let owner = format!("{}?dlock.create_schema=true&{form}", server.url());
            Dlock::on(owner).out(&["guarantees"]);
        }
        let url = server.url_of("app", "secret", "dlock");
        let blocks = written("PostgreSQL", "sql");
        let [default, advisory, plain] = &blocks[..] else {
            return Err(Stop::failed(format!("{blocks:?}")));
        };
        let (most, last) = split(default);
        server.run_sql(most).await?;
        refused(&url);
        server.run_sql(last).await?;
        serves(&url, true);
        for form in &forms[1..] {
            refused(&format!("{url}?{form}"));
        }
        for statement in [
            "create table x (y int)",
            "create temporary table x (y int)",
            "drop table dlock_lock",
            "truncate dlock_lock",
            "update dlock_schema set version = 9",
            "create role another",
        ] {
            assert!(server.query_at(&url, statement).await.is_err(), "{statement}");
        }
        server.run_sql("revoke all on dlock_lock, dlock_schema from app").await?;
        server.run_sql(advisory).await?;
        serves(&format!("{url}?dlock.advisory=true"), false);
        server.run_sql("revoke all on dlock_advisory from app").await?;
        server.run_sql(plain).await?;
        for form in &forms[2..] {
            serves(&format!("{url}?{form}"), true);
        }
        Ok(())
    });
}

#[test]
fn the_grants_for_mariadb_are_enough_and_no_more() {
    run("mysql", async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        for form in ["", "dlock.plain=row"] {
            let owner = format!("{}?dlock.create_schema=true&{form}", server.url());
            Dlock::on(owner).out(&["guarantees"]);
        }
        let url = server.url_of("app", "secret", "dlock");
        let blocks = written("MySQL and MariaDB", "sql");
        let [default, plain] = &blocks[..] else {
            return Err(Stop::failed(format!("{blocks:?}")));
        };
        let (most, last) = split(default);
        server.run_sql(most).await?;
        refused(&url);
        server.run_sql(last).await?;
        serves(&url, true);
        refused(&format!("{url}?dlock.plain=row"));
        for statement in [
            "create table x (y int)",
            "drop table dlock_lock",
            "truncate dlock_lock",
            "lock tables dlock_lock read",
            "update dlock_schema set version = 9",
            "create user another",
        ] {
            assert!(server.query_at(&url, statement).await.is_err(), "{statement}");
        }
        server.run_sql("revoke all privileges, grant option from 'app'@'%'").await?;
        server.run_sql(plain).await?;
        for form in ["row", "version"] {
            serves(&format!("{url}?dlock.plain={form}"), true);
        }
        Ok(())
    });
}

/// The four blocks for Redis: of the servers, of the user `default`, of sentinels, and of the plain
/// form.
fn lines() -> Result<[String; 4], Stop> {
    written("Redis", "text").try_into().map_err(|other| Stop::failed(format!("{other:?}")))
}

/// Runs the lines of a block as the administrator.
async fn admit(server: &RedisServer, block: &str) -> Verdict {
    for line in block.lines() {
        server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
    }
    Ok(())
}

/// The block as one command: in the guide each line after the first repeats the user.
fn one_command(block: &str) -> String {
    block.replace("\nACL SETUSER dlock ", " ")
}

/// A URL with the login of the lines.
fn with_login(url: &str) -> String {
    url.replacen("//", "//dlock:password@", 1)
}

#[test]
fn the_acl_line_for_redis_is_sufficient_and_minimal() {
    run("redis", async {
        let server = RedisServer::start(&Options::new()).await?;
        let [line, default, _, plain] = lines()?;
        let source = include_str!("../../../dlock-redis/src/acl.txt");
        assert_eq!(one_command(&line), source, "the guide and dlock-redis/src/acl.txt differ");
        let source = include_str!("../../../dlock-redis/src/acl_plain.txt");
        assert_eq!(
            one_command(&plain),
            source,
            "the guide and dlock-redis/src/acl_plain.txt differ"
        );
        let url = with_login(&server.url());
        refused(&url);

        admit(&server, &plain).await?;
        serves(&format!("{url}?dlock.plain=true"), true);
        refused(&url);
        server.command(&["ACL", "DELUSER", "dlock"]).await?.ok()?;

        admit(&server, &line).await?;
        let mut user = Resp::connect(&server.address()).await?;
        user.command(&["AUTH", "dlock", "password"]).await?.ok()?;
        admit(&server, &default).await?;
        serves(&url, true);
        refused(&server.url());
        for command in [
            "GET other",
            "SET other 1",
            "FLUSHALL",
            "KEYS *",
            "MONITOR",
            "CONFIG GET *",
            "ACL LIST",
            "PUBLISH other 1",
            "CLIENT LIST",
            "SHUTDOWN",
        ] {
            let words: Vec<_> = command.split(' ').collect();
            let answer = user.command(&words).await?;
            let Reply::Error(error) = &answer else {
                return Err(Stop::failed(format!("{command}: {answer:?}")));
            };
            assert!(error.contains("NOPERM"), "{command}: {error}");
        }
        Ok(())
    });
}

#[test]
fn the_acl_lines_for_sentinel_are_sufficient() {
    run("redis", async {
        let group = RedisSentinel::start(&Options::new()).await?;
        let [line, _, sentinels, _] = lines()?;
        let options = "dlock.sentinel_user=dlock&dlock.sentinel_password=password";
        let url = format!("{}?{options}", with_login(&group.url()));
        for server in group.servers() {
            admit(server, &line).await?;
        }
        refused(&url);
        for sentinel in group.sentinel_servers() {
            admit(sentinel, &sentinels).await?;
        }
        serves(&url, true);
        Ok(())
    });
}

#[test]
fn the_acl_line_for_redis_is_sufficient_in_a_cluster() {
    run("redis", async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        let [line, ..] = lines()?;
        for node in cluster.nodes() {
            admit(node, &line).await?;
        }
        serves(&with_login(&cluster.url()), true);
        Ok(())
    });
}

#[test]
fn the_acl_line_for_redis_is_sufficient_in_a_quorum() {
    run("redis", async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let [line, ..] = lines()?;
        for server in masters.servers() {
            admit(server, &line).await?;
        }
        serves(&format!("{}?dlock.restart_guard=0s", with_login(&masters.url())), true);
        Ok(())
    });
}

#[test]
fn the_acl_for_zookeeper_is_enough_and_no_more() {
    run("zk", async {
        let server = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
        let blocks = written("ZooKeeper", "text");
        let [commands, url] = &blocks[..] else {
            return Err(Stop::failed(format!("{blocks:?}")));
        };
        let shell = async |commands: &str| {
            let mut shell = JavaProgram::start(SHELL, &["-server", &server.address()]).await?;
            for command in commands.lines() {
                shell.say(command).await?;
            }
            shell.finish().await
        };
        shell(commands).await?;
        let url = url.trim_end().replace("z1,z2,z3", &server.address());
        serves(&format!("{url}&dlock.session_timeout=15s"), true);
        for other in ["", "app:wrong@"] {
            refused(&url.replace("app:secret@", other).replace("auth::", "world:anyone:"));
        }
        // The user can neither change the ACL of the chroot nor remove what is not dlock's.
        let denied = "addauth digest app:secret\nsetAcl /shop world:anyone:r\ngetAcl /shop";
        let told = shell(denied).await?;
        assert!(told.contains("'digest,'app:"), "{told}");
        Ok(())
    });
}

#[test]
fn the_role_for_etcd_is_enough_and_no_more() {
    run("etcd", async {
        let server = EtcdServer::start(&etcd::Options::new()).await?;
        let ([commands], [url]) = (&written("etcd", "sh")[..], &written("etcd", "text")[..]) else {
            return Err(Stop::failed("the chapter has one block of each language"));
        };
        for command in commands.lines() {
            let words: Vec<_> = command.split(' ').collect();
            assert_eq!(words[0], "etcdctl");
            server.etcdctl(&words[1..]).await?;
        }
        let url = url.trim_end().replace("e1,e2,e3", &server.address());
        serves(&url, true);
        for other in ["", "app:wrong@", "root:secret@"] {
            refused(&url.replace("app:secret@", other));
        }
        refused(&format!("{url}lock"));
        // The user can neither use other keys nor change users.
        for denied in [
            &["get", "/dlock"][..],
            &["put", "/dlocked/a", ""],
            &["role", "grant-permission", "dlock", "readwrite", "/x"],
            &["user", "add", "other:pw"],
        ] {
            let error = server.etcdctl_as(Some("app:secret"), denied).await.unwrap_err();
            assert!(error.clone().into_text().contains("permission denied"), "{error:?}");
        }
        Ok(())
    });
}

/// A group and three users that exist nowhere else.
const GROUP: u32 = 64_001;
const MEMBERS: [u32; 2] = [64_002, 64_003];
const STRANGER: u32 = 64_004;

/// The directory of the file in the chapter.
const DIRECTORY: &str = "/var/lib/dlock";

/// Runs a block of the chapter in a shell, with another directory.
fn shell(script: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", &script.replace(DIRECTORY, folder.to_str().unwrap())]);
    command
}

#[test]
fn the_modes_for_sqlite_let_the_group_in_and_nobody_else() {
    let blocks = written("SQLite", "sh");
    let [directory, first] = &blocks[..] else { panic!("{blocks:?}") };
    assert!(directory.contains("-o root -g app") && directory.contains(DIRECTORY), "{directory}");
    let temporary = tempfile::tempdir().unwrap();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = temporary.path().join("dlock");
    if !rustix::process::geteuid().is_root() {
        println!("ignored: only root can become the members of a group");
        return;
    }
    // Other users may have no access to the directory in which the program was built.
    let program = temporary.path().join("bin");
    fs::create_dir(&program).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_dlock"), program.join("dlock")).unwrap();
    let owners = format!("-o 0 -g {GROUP}");
    let made = went(&mut shell(&directory.replace("-o root -g app", &owners), &folder));
    assert_eq!(made.code, Some(0), "{made:?}");

    let as_user = |user: u32, group: u32, script: &str| {
        let mut command = shell(script, &folder);
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        command.uid(user).gid(group).current_dir("/").env("PATH", path).env_remove("DLOCK_URL");
        went(&mut command)
    };
    let made = as_user(MEMBERS[0], GROUP, first);
    assert_eq!(made.code, Some(0), "{made:?}");
    let url = format!("DLOCK_URL='sqlite:{DIRECTORY}/locks.db'");
    let cycle =
        format!("{url} dlock run -n a -w 9s -- true; {url} dlock inspect a; {url} dlock doctor");
    for member in MEMBERS {
        let went = as_user(member, GROUP, &cycle);
        assert_eq!(went.code, Some(0), "{went:?}");
        assert!(went.out.starts_with("a: free\n"), "{went:?}");
    }
    let went = as_user(STRANGER, STRANGER, &format!("{url} dlock doctor"));
    assert_eq!(went.code, Some(1), "{went:?}");
    let went = as_user(STRANGER, STRANGER, &format!("cat {DIRECTORY}/locks.db"));
    assert!(went.code != Some(0) && went.err.contains("denied"), "{went:?}");
}
