//! Names that look like parts of keys, and listing names beside other programs' keys.

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::{Stop, client::are_separate};

use crate::support::{connect, exclusive, name, run, says, start, take, works_fully};

/// Braces stand for hash slots in keys, and letters behind them for the parts of a lock.
const NAMES: [&str; 22] = [
    "{}",
    "}{",
    "{",
    "}",
    "{a}b}",
    "{{a}}",
    "{0}",
    "{0}:a",
    "}f:a",
    "a",
    "a:",
    ":a",
    "a:f",
    "f:a",
    "fa",
    "af",
    "q:a",
    "w:a",
    "r:a",
    "dlock:{0}:a",
    "*",
    "a b?[c]\\",
];

#[test]
fn all_kinds_of_locks_work_on_names_that_look_like_keys() {
    run(async {
        let (server, client) = start().await?;
        let other = crate::support::connect(&server.url()).await?;
        for name in NAMES {
            works_fully(&client, &other, name).await?;
        }
        Ok(())
    })
}

#[test]
fn no_two_names_meet() {
    run(async {
        let (_server, client) = start().await?;
        are_separate(&client, &NAMES.map(name)).await
    })
}

#[test]
fn the_longest_names_differ_in_their_last_byte() {
    run(async {
        let (server, client) = start().await?;
        let other = crate::support::connect(&server.url()).await?;
        let long = |last: &str| name(&format!("{}{last}", "x".repeat(512 - last.len())));
        let names = [long("a"), long("b"), long("é"), long("}"), long("f")];
        are_separate(&client, &names).await?;
        // Room for the second name of a multi-lock.
        works_fully(&client, &other, &names[0].as_str()[1..]).await
    })
}

#[test]
fn keys_of_other_programs_are_not_listed() {
    run(async {
        let (server, client) = start().await?;
        for key in
            ["stock/2", "dlock:{0}:stock/3", "dlock:{99}:stock/4", "dlock:{1}x:stock/5", "dlock:"]
        {
            server.command(&["SET", key, "x"]).await?.ok()?;
        }
        take(&client, &exclusive("stock/1")).await?;
        for prefix in ["", "stock", "stock/"] {
            assert_eq!(client.list(prefix, 10).await?, [name("stock/1")], "{prefix:?}");
        }
        // In the plain form, every string could be a lock.
        let plain = connect(&format!("{}?dlock.plain=true", server.url())).await?;
        assert_eq!(plain.list("stock", 10).await?, [name("stock/2")]);
        Ok(())
    })
}

#[test]
fn a_list_covers_thousands_of_keys() {
    run(async {
        let (server, client) = start().await?;
        let mut fill = vec!["MSET".to_owned()];
        fill.extend((0..10_000).flat_map(|n| [format!("other:{n}"), "x".to_owned()]));
        server.command(&fill.iter().map(String::as_str).collect::<Vec<_>>()).await?.ok()?;
        for at in 0..5 {
            take(&client, &exclusive(&format!("few/{at}"))).await?;
        }
        let mut names = client.list("few/", 10).await?;
        names.sort();
        let all: Vec<_> = (0..5).map(|at| name(&format!("few/{at}"))).collect();
        assert_eq!(names, all);
        Ok(())
    })
}

#[test]
fn without_scan_locks_work_and_list_names_the_remedy() {
    run(async {
        let (server, _) = start().await?;
        let line = include_str!("../../src/acl.txt").replace(" +scan", "");
        server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
        let url = format!("redis://dlock:password@{}", server.address());
        let (one, two) = (connect(&url).await?, connect(&url).await?);
        works_fully(&one, &two, "a").await?;
        let error = one.list("", 1).await.err().ok_or_else(|| Stop::failed("it lists"))?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "+scan");
        Ok(())
    })
}
