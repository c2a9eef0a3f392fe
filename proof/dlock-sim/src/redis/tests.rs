//! The server in memory and a real one get the same commands at the same times of their clocks, which
//! stand still between two steps. They have to send the same bytes, and to have the same data.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use dlock_testlab::{
    SteppedClock, Stop, Verdict,
    client::run_on_threads,
    redis::{Options, Persistence, RedisServer},
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use super::{slots::Slots, *};

/// The time at the begin of each case, in microseconds.
const BEGIN: u64 = 1_700_000_000_000_000;

/// The last bytes of each answer.
const MARK: &[u8] = b"$11\r\nend of step\r\n";

/// Returns the data of a real server in the form of [`Data::lines`].
const LINES: &str = "
local lines={}
local function entries(key)
  local all={}
  for _,entry in ipairs(redis.call('XRANGE',key,'-','+')) do
    all[#all+1]=entry[1] all[#all+1]=entry[2][2]
  end
  return all
end
for _,key in ipairs(redis.call('KEYS','*')) do
  local head=key..' ('..string.format('%.0f',redis.call('PTTL',key))..' ms): '
  local kind=redis.call('TYPE',key).ok
  local all=kind=='string' and {'=',redis.call('GET',key)}
    or kind=='stream' and entries(key)
    or kind=='hash' and redis.call('HGETALL',key) or redis.call('ZRANGE',key,0,-1,'WITHSCORES')
  for i=1,#all,2 do lines[#lines+1]=head..all[i]..' '..all[i+1] end
end
return lines";

macro_rules! scripts {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../../dlock-redis/src/scripts/", $name, ".lua"))),*]
    };
}

/// Both servers, with two connections to each.
struct Both {
    fake: Redis,
    /// Each connection to the real server, with its number.
    real: [(u64, TcpStream); 2],
    clock: SteppedClock,
    now: u64,
}

impl Both {
    fn connect(server: &RedisServer, clock: SteppedClock) -> Self {
        let real = [(); 2].map(|()| {
            let stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_nodelay(true).unwrap();
            (0, stream)
        });
        let mut both = Self { fake: Redis::new(1), real, clock, now: 0 };
        for at in 0..2 {
            both.ask(at, &["HELLO", "3"]);
            let id = text(both.ask(at, &["CLIENT", "ID"]));
            both.real[at].0 = id.trim_matches([':', '\\', 'r', 'n']).parse().unwrap();
        }
        both
    }

    /// Removes all data and subscriptions.
    fn clear(&mut self) {
        self.ask(0, &["FLUSHALL"]);
        self.fake.data.borrow_mut().restart(false);
        for at in 0..2 {
            self.ask(at, &["UNSUBSCRIBE"]);
            self.ask(at, &["SUNSUBSCRIBE"]);
        }
        self.go_to(BEGIN);
    }

    fn go_to(&mut self, now: u64) {
        self.now = now;
        self.clock.stop_at(Duration::from_micros(now)).unwrap();
    }

    /// Sends a command to the real server, or none. Returns what it has sent by the answer.
    fn ask<T: AsRef<[u8]>>(&mut self, at: usize, words: &[T]) -> Bytes {
        let stream = &mut self.real[at].1;
        stream.write_all(&[encoded(words), encoded(&["ECHO", "end of step"])].concat()).unwrap();
        let (mut answer, mut part) = (Bytes::new(), [0; 4096]);
        while !answer.ends_with(MARK) {
            let read = stream.read(&mut part).unwrap();
            assert_ne!(read, 0, "the server has closed the connection");
            answer.extend_from_slice(&part[..read]);
        }
        answer.truncate(answer.len() - MARK.len());
        answer
    }

    fn compare<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<(), TestCaseError> {
        self.compare_on(0, words)
    }

    /// Sends a command to both servers. Compares what they send on both connections, and their data.
    fn compare_on<T: AsRef<[u8]>>(&mut self, at: usize, words: &[T]) -> Result<(), TestCaseError> {
        let (one, other) = (self.ask(at, words), self.ask::<T>(1 - at, &[]));
        let real = if at == 0 { [one, other] } else { [other, one] };
        let ids = self.real.each_ref().map(|(id, _)| *id);
        let sent = self.fake.receive(ids[at], &encoded(words), self.now);
        let fake = ids.map(|id| {
            let to_it = sent.iter().filter(|(to, _)| *to == id).map(|(_, bytes)| bytes.as_slice());
            to_it.collect::<Vec<_>>().concat()
        });
        let word = |word: &T| word.as_ref().escape_ascii().to_string();
        let command = Vec::from_iter(words.iter().map(word)).join(" ");
        prop_assert_eq!(fake.map(text), real.map(text), "{}", command);
        let real = next_command(&mut self.ask(0, &["EVAL", LINES, "0"])).unwrap();
        let fake = self.fake.data.borrow_mut().lines();
        let [real, fake] = [real, fake].map(|lines| {
            let mut lines = Vec::from_iter(lines.into_iter().map(text));
            lines.sort();
            lines
        });
        prop_assert_eq!(fake, real, "{}", command);
        Ok(())
    }
}

/// Runs a test with a real server.
fn with_server(persistence: Persistence, test: impl FnOnce(Both) -> Verdict) {
    run_on_threads("redis", async {
        let clock = SteppedClock::start().await?;
        let options = Options::new().with_clock(&clock).with_persistence(persistence);
        let server = RedisServer::start(&options).await?;
        let mut both = Both::connect(&server, clock);
        match text(both.ask(0, &["INFO", "server"])).contains("redis_version:7.0.") {
            true => test(both),
            false => Err(Stop::undecided("the real server is not Redis 7.0")),
        }
    });
}

/// Runs a test on random lists of bytes, from which it makes its commands.
pub(crate) fn explore<const N: usize>(
    cases: u32,
    steps: usize,
    mut test: impl FnMut(&[[u8; N]]) -> Result<(), TestCaseError>,
) -> Verdict {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let test = RefCell::new(&mut test);
    let step = vec(any::<u8>(), N).prop_map(|bytes| <[u8; N]>::try_from(bytes).unwrap());
    let run = |steps: Vec<[u8; N]>| (test.borrow_mut())(&steps);
    TestRunner::new(config).run(&vec(step, 1..steps), run).map_err(Stop::failed)
}

fn encoded<T: AsRef<[u8]>>(words: &[T]) -> Bytes {
    match words.is_empty() {
        true => Bytes::new(),
        false => Value::Array(words.iter().map(Value::text).collect()).encoded(),
    }
}

fn text(bytes: Bytes) -> String {
    bytes.escape_ascii().to_string()
}

/// Returns the words of a text, which semicolons separate.
fn parts(text: impl AsRef<str>) -> Vec<String> {
    text.as_ref().split(';').map(str::to_owned).collect()
}

pub(crate) fn pick<T: Clone>(of: &[T], byte: u8) -> T {
    of[usize::from(byte) % of.len()].clone()
}

/// Picks one of the rare values for one byte in 32.
fn mostly<T: Clone>(common: &[T], rare: &[T], byte: u8) -> T {
    pick(if byte < 248 { common } else { rare }, byte)
}

/// Returns a pause between two steps, in microseconds.
fn pause(byte: u8) -> u64 {
    let short = [0, 0, 0, 1, 5, 400, 999, 1000, 1001, 7000, 19_500];
    mostly(&short, &[200_000, 1_000_500, 29_000_000, 61_000_000], byte)
}

const CLAIMS: [&str; 4] = [
    "00000000000000000000000000000001",
    "00000000000000000000000000000002",
    "00000000000000000000000000000003",
    "abcdefabcdefabcdefabcdefabcdefab",
];
const CHANNELS: [&str; 5] = ["", "c", "!c", "nobody", "{0}s"];
/// In milliseconds.
const LEASES: [&str; 8] = ["30001", "60001", "1001", "30001", "60001", "20", "30001", "1"];
/// Weights and capacities: some of one capacity, some of another, and of a third.
const MODES: [[&str; 2]; 6] =
    [["1073741824"; 2], ["1", "1073741824"], ["1", "3"], ["2", "3"], ["3", "3"], ["1", "2"]];

/// Returns the keys of a name.
fn keys(name: &str) -> Vec<String> {
    let key = |kind| format!("dlock:{{0}}{kind}:{name}");
    vec![key(""), "dlock:{0}t".to_owned(), key("q"), key("w"), key("r")]
}

/// Returns a command of dlock.
fn step(bytes: [u8; 13], now: u64, digests: &[String]) -> Vec<String> {
    let [verb, name, claim, other, lease, mode, tokens, flag, channel, extra, late, more, _] =
        bytes;
    let [name, second] = if name % 8 == 7 { ["b", "a"] } else { ["a", "b"] };
    let [claim, other] = [claim, other].map(|byte| pick(&CLAIMS, byte));
    let [lease, second_lease] = [lease, more].map(|byte| pick(&LEASES, byte));
    let mode_of = |name, byte| {
        let [weight, capacity] =
            mostly(if name == "a" { &MODES[..2] } else { &MODES[2..5] }, &MODES, byte);
        format!("{weight};{capacity}")
    };
    let (mode, second_mode) = (mode_of(name, mode), mode_of(second, more));
    let tokens = mostly(&["1", "1", "3"], &["4503599627370496"], tokens);
    let channel = pick(&CHANNELS, channel);
    let leaves = pick(&["0", "2", "1", "0", "0", "3"], flag);
    let sign = |byte| if byte % 4 == 3 { "-" } else { "" };
    let (sign, second_sign) = (sign(flag), sign(extra));
    let note = mostly(&["", "a note"], &["\u{1}2 new"], more);
    let deadline = if late % 8 == 7 { now - 1 } else { now + 1_000_000 };
    let frozen = if late % 8 == 6 { ";1" } else { "" };
    let plain = vec!["plain".to_owned()];
    let (of_name, of_both) = (keys(name), [keys(name), keys(second)].concat());
    let call = |script: usize, keys: &[String], arguments: String| {
        let head = vec!["EVALSHA".to_owned(), digests[script].clone(), keys.len().to_string()];
        let arguments = if arguments.is_empty() { Vec::new() } else { parts(arguments) };
        [head, keys.to_vec(), arguments].concat()
    };
    match verb {
        0..8 => {
            let proposal = mostly(&[0, 0, now, now + 5_000_000], &[(1 << 53) - 3], extra);
            let note = if note.is_empty() { String::new() } else { format!("{note};") };
            let head = format!("{claim};{lease};{mode};{tokens};{leaves};{channel}");
            call(0, &of_name, format!("{head};{proposal};{note}{deadline}"))
        }
        8 => {
            let one = format!("{claim};{lease};{mode};{tokens};{leaves};{channel};{note}");
            let two = format!("{other};{second_lease};{second_mode};1;{leaves};{channel};{note}");
            call(1, &of_both, format!("{one};{two};{deadline}"))
        }
        9 => call(2, &plain, format!("{claim};{lease};{deadline}")),
        10 | 11 => call(3, &of_name, String::new()),
        12 => {
            let unused = keys("?probe");
            let keys = pick(&[&unused[..], &unused[..1], &[]], extra);
            call(4, keys, format!("{channel};{}", unused[0]))
        }
        13 => {
            let token = now - 1000 * u64::from(extra);
            call(5, &of_name, format!("{claim};{token};{tokens}"))
        }
        14 => {
            let above = mostly(&[now, 1], &[(1 << 53) - 2], extra);
            call(6, &of_name[1..2], above.to_string())
        }
        15..19 => {
            let used = pick(&["1", "0", "2"], extra);
            call(7, &of_name, format!("{claim};{used}{frozen}"))
        }
        19 => match extra % 2 {
            0 => call(8, &plain, claim.to_owned()),
            _ => call(11, &of_name[..1], claim.to_owned()),
        },
        20 | 21 => {
            let taken = pick(&["0", "-1", "7", "-2"], extra);
            call(9, &of_name, format!("{claim};{sign}{lease};{mode};{taken}{frozen}"))
        }
        22 | 23 => {
            let taken = pick(&["0", "-1", "7", "-2"], extra);
            let one = format!("{claim};{sign}{lease};{mode};{taken}");
            let two = format!("{other};{second_sign}{second_lease};{second_mode};0");
            call(9, &of_both, format!("{one};{two}{frozen}"))
        }
        24 | 25 => {
            let own = pick(&["0", "-7", "7"], extra);
            let keys = [&of_name[..1], &plain].concat();
            let claims =
                format!("{claim};{sign}{lease};{own};{other};{second_sign}{second_lease};0");
            call(10, &keys, claims)
        }
        26 => take(&of_name, claim, now, extra),
        _ => parts(format!("SUBSCRIBE;{}", pick(&["c", "d"], more))),
    }
}

/// Returns one of the plain commands that take a lock.
fn take(keys: &[String], claim: &str, now: u64, which: u8) -> Vec<String> {
    let end = now / 1000 + pick(&[5000, 30, 0], which);
    let sending = pick(&["0a", "0b"], which);
    match which % 4 {
        0 => parts(format!("EXISTS;{};{}", keys[2], keys[4])),
        1 => parts(format!("XADD;{};MAXLEN;~;100;*;c;{sending}", keys[1])),
        _ => parts(format!("SET;{};{claim}:~{sending};NX;GET;PXAT;{end}", keys[0])),
    }
}

/// Returns the scripts of dlock and their digests, in the order in which [`step`] calls them.
fn scripts() -> Vec<(String, String)> {
    let [lock, formats] = scripts!["lock" "formats"];
    let scripts = scripts![
        "acquire" "acquire_all" "acquire_plain" "inspect" "preflight" "quorum_token" "raise_tokens"
        "release" "release_plain" "renew" "renew_exclusive" "release_alone"
    ];
    let scripts = scripts.into_iter().map(|script| {
        let script = script.replace("--%lock\n", lock).replace("--%formats\n", formats);
        let digest = sha1_smol::Sha1::from(&script).digest().to_string();
        (script, digest)
    });
    scripts.collect()
}

#[test]
fn the_scripts_of_dlock_do_the_same_on_a_real_server() {
    let scripts = scripts();
    let digests = Vec::from_iter(scripts.iter().map(|(_, digest)| digest.clone()));
    with_server(Persistence::None, |mut both| {
        for (script, _) in &scripts {
            both.ask(0, &["SCRIPT", "LOAD", script]);
            both.fake.scripts.load(script.as_bytes());
        }
        explore(400, 80, |steps| {
            both.clear();
            both.compare_on(0, &["SSUBSCRIBE", "{0}s"])?;
            both.compare_on(1, &["SUBSCRIBE", "c", "d"])?;
            for bytes in steps {
                let mut bytes = *bytes;
                bytes[0] %= 28;
                both.go_to(both.now + pause(bytes[12]));
                both.compare_on(usize::from(bytes[10] % 2), &step(bytes, both.now, &digests))?;
            }
            Ok(())
        })
    });
}

/// The commands, with the kinds of their arguments.
const COMMANDS: &str = "DEL k,DEL k k,EXISTS k,EXISTS k k k,PEXPIRE k l,PEXPIRE k l o,PEXPIRE k l o,PTTL k,\
    GET t,SET t m,SET t m x,SET t m p q,SET t m n p q,SET t i,SETRANGE t b v,HDEL h m,HDEL h m m,\
    HGET h m,HSET h m m,HSET h m m m m,ZADD z s m,ZADD z s m,ZCARD z,ZPOPMIN z,ZRANGE z i i,\
    ZRANGE z i i w,ZRANGEBYSCORE z s s,ZRANK z m,ZREM z m,ZREM z m m,ZSCORE z m,PUBLISH c m,\
    SPUBLISH c m,PING,TIME,SUBSCRIBE c,SSUBSCRIBE c c,SET t m n g p q,XADD y a m m,XADD y j m m,\
    XADD y f ~ 100 j m m,XREVRANGE y + - d e";

/// Returns an argument: a key, a member, an index, a score, a lease, an option or a channel.
fn argument(kind: &str, byte: u8) -> &'static [u8] {
    let among: &[&str] = match kind {
        "k" => &["t", "u", "h", "z"],
        "t" => &["t", "u"],
        "h" => &["h"],
        "z" => &["z"],
        "m" => &["x", "y", "z", "", "1", "\r\n", "\u{ff}\0"],
        "v" => &["x", "yz"],
        "i" => &["0", "1", "-1", "2", "-2", "-100", "100"],
        "b" => &["0", "1", "5"],
        "s" => &["1", "2", "0", "-0", "-1.5", "3e2", "1e17", "-inf", "inf", "0.1"],
        "l" => &["1000", "5", "1000", "1", "1000", "0", "-1"],
        "q" => &["1000", "5", "1"],
        "o" => &["GT", "LT"],
        "x" => &["NX", "KEEPTTL"],
        "n" => &["NX"],
        "p" => &["PX"],
        "w" => &["WITHSCORES"],
        "g" => &["GET"],
        "y" => &["y"],
        "j" => &["*"],
        "a" => &["0-1", "5-0", "5-3", "1900000000000-7"],
        "f" => &["MAXLEN"],
        "~" => &["~"],
        "100" => &["100"],
        "+" => &["+"],
        "-" => &["-"],
        "d" => &["COUNT"],
        "e" => &["1", "3", "100"],
        _ => &["c", "d"],
    };
    pick(among, byte).as_bytes()
}

/// Scripts that call a command. They return the answer, its error, and its types in Lua.
const CALLS: [&str; 4] = [
    "return redis.call(unpack(ARGV))",
    "local answer=redis.call(unpack(ARGV))\nreturn answer",
    "return {redis.pcall(unpack(ARGV)),7}",
    "local a=redis.pcall(unpack(ARGV)) local t=type(a)=='table'
    return {type(a),t and (a.ok or a.err or #a) or tostring(a),t and type(a[1]) or 0}",
];

#[test]
fn each_command_does_the_same_on_a_real_server() {
    let commands: Vec<&str> = COMMANDS.split(',').collect();
    with_server(Persistence::None, |mut both| {
        explore(1000, 60, |steps: &[[u8; 10]]| {
            both.clear();
            for [command, call, after, arguments @ ..] in steps {
                both.go_to(both.now + pause(*after));
                let (name, kinds) =
                    pick(&commands, *command).split_once(' ').unwrap_or(("PING", ""));
                let kinds = kinds.split(' ').filter(|kind| !kind.is_empty());
                let words = kinds.zip(arguments).map(|(kind, byte)| argument(kind, *byte));
                let words: Vec<&[u8]> = [name.as_bytes()].into_iter().chain(words).collect();
                match CALLS.get(usize::from(call % 8)).filter(|_| !name.ends_with("SUBSCRIBE")) {
                    Some(script) => {
                        both.compare(&[&[b"EVAL", script.as_bytes(), b"0"], &*words].concat())?;
                    }
                    None => both.compare(&words)?,
                }
            }
            Ok(())
        })
    });
}

#[test]
fn numbers_are_written_as_on_a_real_server() {
    let script = "local n=ARGV[1]+0 redis.call('SET','t',n) return {redis.call('GET','t'),n}";
    with_server(Persistence::None, |mut both| {
        explore(400, 2, |all: &[[u8; 8]]| {
            let any = f64::from_bits(u64::from_le_bytes(all[0]));
            let simple = f64::from(i32::from_le_bytes(*all[0].first_chunk().unwrap())) / 1024.0;
            for number in [any, simple, simple * 1e17].iter().filter(|number| !number.is_nan()) {
                let number = format!("{number:e}");
                both.compare(&["EVAL", script, "0", &number])?;
                both.compare(&["ZADD", "z", &number, "m"])?;
                both.compare(&["ZSCORE", "z", "m"])?;
            }
            Ok(())
        })
    });
}

#[test]
fn scripts_answer_and_fail_as_on_a_real_server() {
    const SCRIPTS: [&str; 13] = [
        "return {1,2.7,-2.7,1/0,nil,3}",
        "return {true,false,{err='X y'},{ok='fine'}}",
        "return {0/0,2^53,-2^63,1e300}",
        "return {{},{{}},''}",
        "return redis.error_reply('-DLOCK a')",
        "return redis.error_reply('DLOCK')",
        "error('a\\nb\\n')",
        "error('a',0)",
        "error({err='DLOCK x'})",
        "local x\nreturn x.y",
        "return x",
        "x=1",
        "redis.call('PUBLISH','c',1) redis.call('SPUBLISH','c',2) return {#KEYS,KEYS[1],ARGV[2]}",
    ];
    with_server(Persistence::None, |mut both| {
        both.clear();
        both.compare(&["SUBSCRIBE", "c", "d", "c"])?;
        both.compare(&["SSUBSCRIBE", "c"])?;
        for text in SCRIPTS {
            both.compare(&["EVAL", text, "1", "key", "argument"])?;
        }
        Ok(())
    });
}

#[test]
fn connections_and_settings_answer_as_on_a_real_server() {
    const COMMANDS: [&str; 3] = [
        "CLIENT SETINFO LIB-NAME dlock",
        "WAIT 0 1",
        "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
    ];
    with_server(Persistence::AofAlways, |mut both| {
        both.clear();
        for command in COMMANDS {
            both.compare(&Vec::from_iter(command.split(' ')))?;
        }
        // Each start of a server has its own order of the settings.
        let settings = ["CONFIG", "GET", "*appendfsync*"];
        let real = text(both.ask(0, &settings));
        let fake =
            text(both.fake.receive(both.real[0].0, &encoded(&settings), both.now).remove(0).1);
        let [real, fake] = [&real, &fake].map(|answer| {
            let mut lines = Vec::from_iter(answer.split("\\r\\n"));
            lines.sort_unstable();
            lines
        });
        assert_eq!(fake, real);
        let info = text(both.ask(0, &["INFO", "everything"]));
        for line in INFO.lines().filter(|line| !line.ends_with("RUN")) {
            assert!(info.contains(&format!("{line}\\r\\n")), "{line}: {info}");
        }
        Ok(())
    });
}

#[test]
fn a_command_may_arrive_in_parts_and_with_others() {
    let commands = [encoded(&["SET", "a", "1"]), encoded(&["GET", "a"])].concat();
    for at in 0..commands.len() {
        let mut redis = Redis::new(1);
        let mut sent = redis.receive(1, &commands[..at], BEGIN);
        sent.extend(redis.receive(1, &commands[at..], BEGIN));
        let sent = sent.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(text(sent), "+OK\\r\\n$1\\r\\n1\\r\\n", "{at}");
    }
}

#[test]
fn a_restart_ends_connections_and_keeps_data_if_it_can() {
    for keeps_data in [false, true] {
        let mut redis = Redis::new(1);
        let send = |redis: &mut Redis, words: &[&str]| {
            let sent = redis.receive(1, &encoded(words), BEGIN);
            text(sent.into_iter().flat_map(|(_, bytes)| bytes).collect())
        };
        let waiter = "1:1:1:1:1700000020000000:c";
        let left =
            ["dlock:{0}:a (9000 ms): = 1", "dlock:{0}w:a (-1 ms): x 1:1:1:1:1700000020000000:c"];
        send(&mut redis, &["SET", "dlock:{0}:a", "1", "PX", "9000"]);
        send(&mut redis, &["HSET", "dlock:{0}w:a", "x", waiter]);
        send(&mut redis, &["XADD", "dlock:{0}t", "*", "c", "x"]);
        send(&mut redis, &["SET", "dlock:{0}?guard:", "7"]);
        send(&mut redis, &["SUBSCRIBE", "c"]);
        assert_eq!(send(&mut redis, &["EVAL", "return 1", "0"]), ":1\\r\\n");
        assert_eq!(redis.left(BEGIN), left);
        assert_eq!(redis.left(BEGIN + 9_001_000), left[1..]);
        assert_eq!(redis.left(BEGIN + 21_000_000), [""; 0], "the waiter has expired");
        redis.receive(1, b"*1\r\n$4", BEGIN);
        redis.restart(2, keeps_data);
        assert!(
            send(&mut redis, &["INFO"]).contains("run_id:0000000000000000000000000000000000000002")
        );
        assert_eq!(send(&mut redis, &["PUBLISH", "c", "x"]), ":0\\r\\n");
        assert!(send(&mut redis, &["EVALSHA", &"0".repeat(40), "0"]).starts_with("-NOSCRIPT"));
        assert_eq!(redis.left(BEGIN), if keeps_data { &left[1..] } else { &[] });
    }
}

/// Returns the bytes that a connection is sent.
fn received(sent: Vec<(u64, Bytes)>, connection: u64) -> String {
    let of_it = sent.into_iter().filter(|(to, _)| *to == connection);
    text(of_it.flat_map(|(_, bytes)| bytes).collect())
}

#[test]
fn a_replica_refuses_writes_as_on_a_real_server() {
    with_server(Persistence::None, |mut both| {
        both.clear();
        both.compare(&["SET", "a", "1"])?;
        both.ask(0, &["REPLICAOF", "127.0.0.1", "1"]);
        both.fake.demote();
        assert!(both.fake.is_replica());
        for words in [&["SET", "a", "2"][..], &["GET", "a"], &["WAIT", "0", "1"]] {
            both.compare(words)?;
        }
        for text in
            ["return redis.call('DEL','a')", "return redis.pcall('HSET','h','f','v')", "return 1"]
        {
            both.compare(&["EVAL", text, "0"])?;
        }
        let role = "role:slave";
        assert!(text(both.ask(0, &["INFO", "replication"])).contains(role));
        assert!(received(both.fake.receive(9, &encoded(&["INFO"]), BEGIN), 9).contains(role));
        both.ask(0, &["REPLICAOF", "NO", "ONE"]);
        both.fake.promote(7);
        both.compare(&["SET", "a", "2"])?;
        Ok(())
    });
}

#[test]
fn a_wait_ends_with_enough_replicas_or_with_its_time() {
    let mut redis = Redis::new(1);
    assert!(redis.acknowledged(1, 0, BEGIN).is_empty() && redis.counts(1) == 0);
    let wait = [encoded(&["SET", "a", "1"]), encoded(&["WAIT", "1", "50"]), encoded(&["PING"])];
    let wait = wait.concat();
    assert_eq!(received(redis.receive(3, &wait, BEGIN), 3), "+OK\\r\\n");
    assert_eq!(received(redis.receive(4, &encoded(&["WAIT", "1", "50"]), BEGIN), 4), ":1\\r\\n");
    assert_eq!(redis.waits_until(), Some(BEGIN + 50_000));
    assert!(redis.acknowledged(1, 0, BEGIN + 1).is_empty());
    let answers = redis.acknowledged(1, 1, BEGIN + 2);
    assert_eq!(received(answers, 3), ":1\\r\\n+PONG\\r\\n");
    assert_eq!((redis.counts(0), redis.counts(1), redis.counts(2)), (1, 1, 0));
    assert_eq!(received(redis.receive(3, &wait, BEGIN), 3), "+OK\\r\\n");
    assert!(redis.resume(BEGIN + 49_999).is_empty());
    assert_eq!(received(redis.resume(BEGIN + 50_000), 3), ":0\\r\\n+PONG\\r\\n");
    assert_eq!(received(redis.receive(3, &wait, BEGIN), 3), "+OK\\r\\n");
    redis.closed(3);
    assert_eq!(redis.waits_until(), None);
    redis.forget_replica(1);
    assert_eq!(received(redis.receive(4, &encoded(&["WAIT", "0", "50"]), BEGIN), 4), ":0\\r\\n");
}

#[test]
fn a_replica_has_the_data_that_its_master_had() {
    let [mut master, mut replica] = [1, 2].map(Redis::new);
    let ask =
        |redis: &mut Redis, words: &[&str]| received(redis.receive(1, &encoded(words), BEGIN), 1);
    replica.demote();
    ask(&mut master, &["SET", "a", "1", "PX", "9000"]);
    replica.load(master.unsent().unwrap());
    assert!(master.unsent().is_none());
    ask(&mut master, &["SET", "a", "2"]);
    assert_eq!(ask(&mut replica, &["GET", "a"]), "$1\\r\\n1\\r\\n");
    assert_eq!((master.offset(), replica.offset()), (2, 1));
}

#[test]
fn a_closed_connection_receives_nothing() {
    let mut redis = Redis::new(1);
    for connection in [1, 2] {
        redis.receive(connection, &encoded(&["SUBSCRIBE", "c"]), BEGIN);
        redis.receive(connection, &encoded(&["SSUBSCRIBE", "c"]), BEGIN);
    }
    redis.closed(1);
    for publish in ["PUBLISH", "SPUBLISH"] {
        let sent = redis.receive(3, &encoded(&[publish, "c", "x"]), BEGIN);
        assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [2, 3]);
    }
}

#[test]
fn a_slot_that_moves_is_served_by_one_node() {
    let slots = Rc::new(RefCell::new(Slots::of(&["10.0.0.1:1", "10.0.0.2:2"])));
    let [mut old, mut new] = [0, 1].map(|at| Redis::new(1).in_cluster(at, &slots));
    let ask = |node: &mut Redis, words: &[&str]| {
        received(node.receive(1, &encoded(words), BEGIN), 1).replace("\\r\\n", " ")
    };
    let set = |key| ["EVAL", "return redis.call('SET',KEYS[1],1)", "1", key];
    let [a, b] = [set("dlock:{0}:a"), set("dlock:{0}:b")];
    let both = ["EVAL", "return #KEYS", "2", "dlock:{0}:a", "dlock:{0}:c"];
    let again = "-TRYAGAIN Multiple keys request during rehashing of slot ";
    assert_eq!(ask(&mut old, &a), "+OK ");
    assert_eq!(ask(&mut new, &a), "-MOVED 13907 10.0.0.1:1 ");
    ask(&mut old, &["SSUBSCRIBE", "dlock:i:x:{0}"]);

    slots.borrow_mut().moving.insert(0, (0, 1));
    assert_eq!(ask(&mut old, &a), "+OK ");
    assert_eq!(ask(&mut old, &both), again);
    assert_eq!(ask(&mut old, &b), "-ASK 13907 10.0.0.2:2 ");
    assert_eq!(ask(&mut new, &b), "-MOVED 13907 10.0.0.1:1 ");
    for (words, answer) in [(&b[..], "+OK "), (&both, again)] {
        assert_eq!(ask(&mut new, &["ASKING"]), "+OK ");
        assert_eq!(ask(&mut new, words), answer);
    }
    assert!(old.move_key(0, &mut new) && !old.move_key(0, &mut new));
    assert_eq!((old.buckets().len(), new.buckets().len()), (0, 1));
    assert_eq!(ask(&mut old, &both), "-ASK 13907 10.0.0.2:2 ");

    slots.borrow_mut().owners.iter_mut().for_each(|owners| owners[0] = 1);
    slots.borrow_mut().moving.clear();
    assert!(received(old.give_up(0), 1).contains("sunsubscribe"));
    assert_eq!(ask(&mut old, &a), "-MOVED 13907 10.0.0.2:2 ");
    assert_eq!(ask(&mut new, &both), ":2 ");
    assert!(
        ask(&mut new, &["CLUSTER", "SLOTS"]).starts_with("*64 *3 :13907 :13907 *3 $8 10.0.0.2")
    );
}
