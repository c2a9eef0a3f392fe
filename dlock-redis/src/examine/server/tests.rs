use dlock_core::Level;

use super::*;

/// Returns a server without faults, except for these fields and settings.
fn server(fields: &[(&str, &str)], settings: &[(&'static str, &str)]) -> ServerReport {
    let mut info: HashMap<String, String> = HashMap::new();
    for (name, value) in [
        ("redis_version", "7.2.4"),
        ("role", "master"),
        ("maxmemory_policy", "noeviction"),
        ("aof_enabled", "1"),
    ]
    .iter()
    .chain(fields)
    {
        info.insert((*name).to_owned(), (*value).to_owned());
    }
    let mut all = HashMap::new();
    for (name, value) in [
        ("appendfsync", "always"),
        ("min-replicas-max-lag", "10"),
        ("min-replicas-to-write", "1"),
        ("no-appendfsync-on-rewrite", "no"),
        ("tcp-keepalive", "300"),
        ("timeout", "0"),
    ]
    .iter()
    .chain(settings)
    {
        all.insert((*name).to_owned(), (*value).to_owned());
    }
    ServerReport { info: Some(info), settings: all, time: None, may_scan: true }
}

/// Returns the findings that are not fine, with their levels.
fn problems(server: &ServerReport, wants: &Wants) -> Vec<(&'static str, Level)> {
    let findings = server.findings(wants);
    for finding in &findings {
        assert_eq!(finding.remedy.is_some(), finding.level > Level::Fine, "{finding:?}");
    }
    let problems = findings.iter().filter(|finding| finding.level > Level::Fine);
    problems.map(|finding| (finding.about, finding.level)).collect()
}

#[test]
fn each_bad_setting_is_reported_alone() {
    use Level::{Warning, Wrong};
    let single = Wants::default();
    assert_eq!(problems(&server(&[], &[]), &single), []);
    for (field, value, about, level) in [
        ("redis_version", "6.2.19", "version", Wrong),
        ("redis_version", "5", "version", Wrong),
        ("role", "slave", "role", Wrong),
        ("maxmemory_policy", "allkeys-lru", "eviction", Warning),
        ("aof_enabled", "0", "persistence", Warning),
    ] {
        assert_eq!(problems(&server(&[(field, value)], &[]), &single), [(about, level)], "{value}");
    }
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let evicts = server(&[("maxmemory_policy", policy), ("maxmemory", "1048576")], &[]);
        assert_eq!(problems(&evicts, &single), [("eviction", Wrong)]);
    }
    for (setting, value, about) in [
        ("appendfsync", "everysec", "persistence"),
        ("no-appendfsync-on-rewrite", "yes", "persistence"),
        ("tcp-keepalive", "0", "connections"),
        ("timeout", "60", "connections"),
    ] {
        assert_eq!(
            problems(&server(&[], &[(setting, value)]), &single),
            [(about, Warning)],
            "{value}"
        );
    }
}

#[test]
fn valkey_is_named_with_its_own_version() {
    let found = |fields: &[_]| server(fields, &[]).version().found;
    assert_eq!(found(&[]), "Redis 7.2.4");
    assert_eq!(found(&[("valkey_version", "9.0.1")]), "Valkey 9.0.1");
}

#[test]
fn a_restart_guard_replaces_persistence() {
    let forgets = server(&[("aof_enabled", "0")], &[]);
    let guarded = Wants { guard: Duration::from_secs(30), ..Wants::default() };
    assert_eq!(problems(&forgets, &guarded), []);
}

#[test]
fn replicas_are_counted_and_timed() {
    let durable = Wants { replicas: 2, ..Wants::default() };
    let fields = |first, second| server(&[("slave0", first), ("slave1", second)], &[]);
    let online = "ip=127.0.0.1,port=1,state=online,offset=9,lag=1";
    assert_eq!(problems(&fields(online, online), &durable), []);
    let loading = "ip=127.0.0.1,port=1,state=wait_bgsave,offset=0,lag=0";
    assert_eq!(problems(&fields(online, loading), &durable), [("replication", Level::Wrong)]);
    let late = "ip=127.0.0.1,port=1,state=online,offset=9,lag=60";
    assert_eq!(problems(&fields(online, late), &durable), [("replication", Level::Warning)]);
}

#[test]
fn a_failover_setup_has_more_findings() {
    let sentinel = Wants { has_sentinels: true, ..Wants::default() };
    let cluster = Wants { is_cluster: true, ..Wants::default() };
    let alone = server(&[], &[("min-replicas-to-write", "0")]);
    let expected = [("replication", Level::Warning), ("failover", Level::Warning)];
    assert_eq!(problems(&alone, &sentinel), expected);
    assert_eq!(problems(&alone, &cluster), expected);
    let online = ("slave0", "ip=127.0.0.1,port=1,state=online,offset=9,lag=1");
    for (setting, value, expected) in [
        ("min-replicas-to-write", "0", &[("failover", Level::Warning)][..]),
        ("min-replicas-max-lag", "0", &[("failover", Level::Warning)]),
        ("min-replicas-max-lag", "31", &[("failover", Level::Warning)]),
        ("min-replicas-max-lag", "30", &[]),
    ] {
        let server = server(&[online], &[(setting, value)]);
        assert_eq!(problems(&server, &sentinel), expected, "{setting} {value}");
    }
}

#[test]
fn a_missing_answer_is_a_warning() {
    let silent = ServerReport::default();
    let expected = ["server", "rights", "connections"].map(|about| (about, Level::Warning));
    assert_eq!(problems(&silent, &Wants::default()), expected);
}

#[test]
fn an_unreported_setting_is_never_fine() {
    let wants = Wants { has_sentinels: true, ..Wants::default() };
    for (name, about) in [
        ("redis_version", "version"),
        ("role", "role"),
        ("maxmemory_policy", "eviction"),
        ("aof_enabled", "persistence"),
        ("appendfsync", "persistence"),
        ("no-appendfsync-on-rewrite", "persistence"),
        ("min-replicas-max-lag", "failover"),
        ("min-replicas-to-write", "failover"),
        ("timeout", "connections"),
        ("tcp-keepalive", "connections"),
    ] {
        let mut server = server(&[], &[]);
        let fields = server.info.as_mut().expect("fields");
        assert!(fields.remove(name).is_some() | server.settings.remove(name).is_some(), "{name}");
        let found = problems(&server, &wants);
        assert!(found.iter().any(|(found, _)| *found == about), "{name}: {found:?}");
    }
}

#[test]
fn a_disk_without_sync_during_rewrites_is_reported() {
    let persistence = |server: &ServerReport, guard| {
        let wants = Wants { guard, ..Wants::default() };
        let finding = server.persistence(&wants);
        (finding.level, finding.found)
    };
    let mut silent = server(&[], &[]);
    silent.settings.remove("no-appendfsync-on-rewrite");
    for (server, word) in [
        (server(&[], &[("no-appendfsync-on-rewrite", "yes")]), "no-appendfsync-on-rewrite yes"),
        (silent, "does not report"),
        (server(&[("aof_last_write_status", "err")], &[]), "aof_last_write_status"),
    ] {
        let (level, found) = persistence(&server, Duration::ZERO);
        assert_eq!(level, Level::Warning, "{found}");
        assert!(found.contains(word), "{found}");
        let (level, found) = persistence(&server, Duration::from_secs(30));
        assert_eq!(level, Level::Fine, "{found}");
        assert!(found.contains("30s"), "{found}");
    }
}
