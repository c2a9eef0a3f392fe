//! The server in memory and a real one get the same statements at the same times of their clocks. They
//! have to answer the same, to wait for the same rows, and to have the same table.

use std::time::Duration;

use dlock_testlab::{
    SteppedClock, Stop, Verdict,
    client::run_on_threads,
    postgres::{Options, PostgresServer},
};
use proptest::prelude::*;
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, PgConnection, Row as _, TypeInfo as _,
    postgres::{PgConnectOptions, PgListener, PgRow},
};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, block_in_place},
    time::{sleep, timeout},
};

use super::{server::*, wire};
use crate::redis::tests::{explore, pick};

/// The time at the begin of each case, in microseconds.
const BEGIN: u64 = 1_700_000_000_000_000;
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const NAMES: [&str; 4] = ["a", "b", "B", "c é"];

macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../../../dlock-sql/src/postgres/", $name, ".sql"))
    };
}

/// An argument as the driver sends it.
enum Argument {
    Text(String),
    Number(i64),
    Texts(Vec<String>),
    Numbers(Vec<i64>),
}

/// Returns the SQL and the arguments of a statement, in the order of the file.
fn real(statement: &[String]) -> (String, Vec<Argument>) {
    use Argument::{Number, Numbers, Text, Texts};
    let words = &statement[1..];
    let number = |word: &String| word.parse::<i64>().unwrap();
    let texts = |at, of: usize| Texts(words.iter().skip(at).step_by(of).cloned().collect());
    let numbers = |at, of: usize| Numbers(words.iter().skip(at).step_by(of).map(number).collect());
    let text_at = |at: usize| Text(words[at].clone());
    let number_at = |at: usize| Number(number(&words[at]));
    match &*statement[0] {
        name @ ("apply_one" | "apply_one_without_sync") => {
            let skip = "AS now, pg_catalog.set_config('synchronous_commit', 'off', true)) AS clock";
            let sql = match name {
                "apply_one" => sql!("apply_one").to_owned(),
                _ => sql!("apply_one").replacen("AS now) AS clock", skip, 1),
            };
            let [seen, cut, known, time] = [1, 2, 6, 5].map(number_at);
            (sql, vec![text_at(0), seen, cut, text_at(3), text_at(4), known, time])
        }
        "apply_many" => {
            let [seen, cut, time] = [1, 2, 5].map(|at| numbers(at, 8));
            let known: Vec<&[String]> = words.chunks(8).filter(|write| write[6] != "0").collect();
            let names = Texts(known.iter().map(|write| write[0].clone()).collect());
            let [bases, lengths] =
                [6, 7].map(|at| Numbers(known.iter().map(|write| number(&write[at])).collect()));
            let writes = [texts(0, 8), seen, cut, texts(3, 8), texts(4, 8), time];
            let arguments = writes.into_iter().chain([names, bases, lengths]).collect();
            (sql!("apply_many").to_owned(), arguments)
        }
        "read" => (sql!("read").to_owned(), vec![texts(0, 2), numbers(1, 2)]),
        "page" => {
            let [old, most, skip] = [1, 2, 3].map(number_at);
            (sql!("page").to_owned(), vec![text_at(0), old, most, skip])
        }
        "delete" => (sql!("delete").to_owned(), vec![texts(0, 3), numbers(1, 3), numbers(2, 3)]),
        "unlocked" => (sql!("unlocked").to_owned(), vec![texts(0, 1)]),
        "notify" => (sql!("notify").to_owned(), vec![texts(0, 2), texts(1, 2)]),
        other => panic!("{other}"),
    }
}

/// Rows in any order, or the code of an error.
type RealAnswer = Result<Vec<Vec<String>>, String>;
/// A statement that runs on a connection to the real server.
type RunningStatement = JoinHandle<(PgConnection, RealAnswer)>;

fn run(mut connection: PgConnection, statement: &[String]) -> RunningStatement {
    let (sql, arguments) = real(statement);
    tokio::runtime::Handle::current().spawn(async move {
        let query = sqlx::query(AssertSqlSafe(sql));
        let query = arguments.into_iter().fold(query, |query, argument| match argument {
            Argument::Text(text) => query.bind(text),
            Argument::Number(number) => query.bind(number),
            Argument::Texts(texts) => query.bind(texts),
            Argument::Numbers(numbers) => query.bind(numbers),
        });
        let answer = match query.fetch_all(&mut connection).await {
            Ok(rows) => Ok(sorted(rows.iter().map(cells).collect())),
            Err(error) => Err(error.as_database_error().unwrap().code().unwrap().into_owned()),
        };
        (connection, answer)
    })
}

fn cells(row: &PgRow) -> Vec<String> {
    let cell = |at| match row.column(at).type_info().name() {
        "INT8" => row.get::<Option<i64>, _>(at).map(|number| number.to_string()),
        "VOID" => None,
        _ => row.get::<Option<String>, _>(at),
    };
    (0..row.len()).map(|at| cell(at).unwrap_or_else(|| wire::NULL.to_owned())).collect()
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

/// The answer of the server in memory, in the same form.
fn answer(words: &[String]) -> RealAnswer {
    if words[0] == wire::ERROR {
        return Err(words[1].clone());
    }
    let width = words[2..].len().checked_div(words[1].parse().unwrap()).unwrap_or(1).max(1);
    Ok(sorted(words[2..].chunks(width).map(<[String]>::to_vec).collect()))
}

/// Both servers, with two sessions at each.
struct Pair {
    fake: Postgres,
    real: [Option<PgConnection>; 2],
    /// The processes of the sessions on the real server.
    processes: [i32; 2],
    /// The transaction that each session has not ended on the server in memory, and the answer to
    /// its statement from the real one.
    open: [Option<(u64, RealAnswer)>; 2],
    /// The session that waits for a row, and its statement.
    waiting: Option<(usize, RunningStatement)>,
    /// Looks at the real server.
    control: PgConnection,
    clock: SteppedClock,
    now: u64,
}

impl Pair {
    async fn connect(server: &PostgresServer, clock: SteppedClock) -> Result<Self, Stop> {
        let options: PgConnectOptions = server.url().parse()?;
        let [mut one, mut other, control] =
            [options.connect().await?, options.connect().await?, options.connect().await?];
        let mut processes = [0; 2];
        for (connection, process) in [&mut one, &mut other].into_iter().zip(&mut processes) {
            *process = sqlx::query("SELECT pg_backend_pid()")
                .fetch_one(connection)
                .await?
                .get::<i32, _>(0);
        }
        let (real, open) = ([Some(one), Some(other)], [None, None]);
        let fake = Postgres::new(None);
        Ok(Self { fake, real, processes, open, waiting: None, control, clock, now: 0 })
    }

    /// Ends everything, and removes all data.
    async fn clear(&mut self) -> Result<(), Stop> {
        for session in [0, 1] {
            self.end(session, false).await.map_err(Stop::failed)?;
        }
        sqlx::query("DELETE FROM dlock_lock").execute(&mut self.control).await?;
        self.fake = Postgres::new(None);
        self.now = BEGIN;
        self.clock.stop_at(Duration::from_micros(BEGIN))
    }

    /// Runs a statement in a session that runs none. With `holds`, its transaction stays open.
    async fn run(
        &mut self,
        session: usize,
        statement: Vec<String>,
        holds: bool,
    ) -> Result<(), TestCaseError> {
        let mut connection = self.real[session].take().unwrap();
        if holds {
            sqlx::query("BEGIN").execute(&mut connection).await.unwrap();
        }
        let running = run(connection, &statement);
        let name = format!("{statement:?} in {session}");
        let steps = self.fake.begin(session as u64, statement, self.now);
        match &*steps {
            [Step::Send(_, words)] => {
                self.compare(session, running, words, &name).await?;
                if holds {
                    self.control_of(session, "COMMIT").await;
                }
            }
            [Step::Commit { transaction, .. }] if holds => {
                let (connection, real) = timeout(LONGEST_WAIT, running).await.unwrap().unwrap();
                self.real[session] = Some(connection);
                self.open[session] = Some((*transaction, real));
            }
            [Step::Commit { transaction, .. }] => {
                let steps = self.fake.commit(session as u64, *transaction);
                let [Step::Send(_, words)] = &*steps else { panic!("{steps:?}") };
                self.compare(session, running, words, &name).await?;
            }
            [Step::Wait { .. }] => {
                // A transaction of its own ends with the statement.
                self.waits(session).await;
                self.waiting = Some((session, running));
            }
            other => panic!("{other:?}"),
        }
        self.compare_tables(&name).await
    }

    /// Waits until a session of the real server waits for a row.
    async fn waits(&mut self, session: usize) {
        let waits = async {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 \
                       AND wait_event_type = 'Lock'";
            loop {
                let query = sqlx::query(sql).bind(self.processes[session]);
                let row = query.fetch_one(&mut self.control).await.unwrap();
                if row.get::<i64, _>(0) == 1 {
                    break;
                }
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(LONGEST_WAIT, waits).await.expect("the real server waits, too");
    }

    async fn control_of(&mut self, session: usize, sql: &'static str) {
        let connection = self.real[session].as_mut().unwrap();
        sqlx::query(sql).execute(connection).await.unwrap();
    }

    /// Ends the open transaction of a session, or its wait.
    async fn end(&mut self, session: usize, commits: bool) -> Result<(), TestCaseError> {
        if self.waiting.as_ref().is_some_and(|(waiting, _)| *waiting == session) {
            return self.cancel(session).await;
        }
        let Some((transaction, real)) = self.open[session].take() else { return Ok(()) };
        self.control_of(session, if commits { "COMMIT" } else { "ROLLBACK" }).await;
        let steps = match commits {
            true => self.fake.commit(session as u64, transaction),
            false => self.fake.roll_back(session as u64, transaction, None, "57014"),
        };
        if let [Step::Send(_, words), ..] = &*steps
            && commits
        {
            prop_assert_eq!(answer(words), real);
        }
        // The other session goes on.
        if let [_, Step::Commit { session, transaction, .. }] = &*steps {
            let steps = self.fake.commit(*session, *transaction);
            let [Step::Send(_, words)] = &*steps else { panic!("{steps:?}") };
            let (waiting, running) = self.waiting.take().unwrap();
            self.compare(waiting, running, words, "after a wait").await?;
        }
        self.compare_tables(if commits { "commit" } else { "rollback" }).await
    }

    /// Cancels a statement that waits, as a timeout does.
    async fn cancel(&mut self, session: usize) -> Result<(), TestCaseError> {
        let (_, running) = self.waiting.take().unwrap();
        let query = sqlx::query("SELECT pg_cancel_backend($1)").bind(self.processes[session]);
        query.execute(&mut self.control).await.unwrap();
        let (transaction, waits) = self.fake.transaction(session as u64).unwrap();
        prop_assert!(waits);
        let steps = self.fake.roll_back(session as u64, transaction, None, STATEMENT_TIMEOUT);
        let [Step::Send(_, words)] = &*steps else { panic!("{steps:?}") };
        self.compare(session, running, words, "a cancelled statement").await
    }

    async fn compare(
        &mut self,
        session: usize,
        running: RunningStatement,
        words: &[String],
        name: &str,
    ) -> Result<(), TestCaseError> {
        let (connection, real) = timeout(LONGEST_WAIT, running).await.unwrap().unwrap();
        self.real[session] = Some(connection);
        prop_assert_eq!(answer(words), real, "{}", name);
        Ok(())
    }

    async fn compare_tables(&mut self, name: &str) -> Result<(), TestCaseError> {
        let sql = "SELECT name, base, snap, log FROM dlock_lock ORDER BY name";
        let rows = sqlx::query(sql).fetch_all(&mut self.control).await.unwrap();
        let fake = self.fake.rows().iter().map(|(name, row)| {
            vec![name.clone(), row.base.to_string(), row.snap.clone(), row.log.clone()]
        });
        let fake: Vec<_> = fake.collect();
        prop_assert_eq!(fake, rows.iter().map(cells).collect::<Vec<_>>(), "{}", name);
        Ok(())
    }

    /// Makes a statement from random bytes. Many of its arguments fit the table.
    fn statement(&self, bytes: &[u8; 12]) -> Vec<String> {
        let [_, _, _, kind, first, second, rest @ ..] = bytes;
        let name = |byte| pick(&NAMES, byte).to_owned();
        let row = |byte| self.fake.rows().get(pick(&NAMES, byte)).cloned().unwrap_or_default();
        let base = |of, byte| pick(&[row(of).base, row(of).base, 0, 7], byte).to_string();
        let snap_length = |of| {
            let length = row(of).snap.len();
            pick(&[length, length, length + 1], rest[5]).to_string()
        };
        let length = |of, byte: u8| {
            let log = row(of).log;
            let ends: Vec<usize> = log.match_indices(';').map(|(at, _)| at + 1).collect();
            let at = usize::from(byte / 4) % ends.len().max(1);
            let end = ends.get(at).copied().unwrap_or_default();
            (end, pick(&[end, end, end + 1, log.len()], byte))
        };
        let write = |of: u8, bytes: &[u8]| {
            let (end, cut) = length(of, bytes[0]);
            let log = row(of).log;
            let time = log.get(..end).and_then(|log| log.trim_end_matches(';').rsplit(' ').next());
            let time = time.filter(|time| !time.is_empty()).unwrap_or("0").to_owned();
            let snap = pick(&["v1 1 1;", "v1 1 1;", "v1 2 1;", "", "v2 x;", "v1 1"], bytes[1]);
            let op = pick(&["K x 1 5", "R x 0", "D 5;K y 1 5", "F 7;R z 0"], bytes[2]);
            let time = pick(&[time.clone(), time.clone(), time, "3".to_owned()], bytes[3] / 16);
            let words = [name(of), base(of, bytes[3]), cut.to_string(), snap.to_owned()];
            words.into_iter().chain([op.to_owned(), time]).collect::<Vec<_>>()
        };
        let words = |kind: &str, words: Vec<String>| [vec![kind.to_owned()], words].concat();
        let some = || {
            let names = NAMES.iter().zip(0u8..).filter(|(_, at)| first >> at & 1 == 1);
            names.map(|(_, at)| at).collect::<Vec<u8>>()
        };
        match kind % 11 {
            at @ 0..4 => {
                let kind = if at == 0 { "apply_one_without_sync" } else { "apply_one" };
                let mut write = write(*first, rest);
                if write[1] == "0" {
                    write[2] = snap_length(*first);
                }
                words(kind, [write, vec![base(*first, rest[4])]].concat())
            }
            4..7 => {
                let write = |of: &u8| {
                    let known = [base(*of, rest[4]), snap_length(*of)];
                    write(*of, rest).into_iter().chain(known)
                };
                words("apply_many", some().iter().flat_map(write).collect())
            }
            7 => {
                let read = |of: &u8| [name(*of), base(*of, *second)];
                words("read", some().iter().rev().flat_map(read).collect())
            }
            8 => {
                let old = pick(&[0, 5, 1_000_000], rest[0]).to_string();
                let [most, skip] = [rest[1] % 4, rest[2] % 3].map(|number| number.to_string());
                let after = pick(&["", "a", "b"], *second).to_owned();
                words("page", vec![after, old, most, skip])
            }
            9 => {
                let delete = |of: &u8| {
                    let log = row(*of).log.len();
                    let length = pick(&[log, log, log, 1], rest[0]);
                    [name(*of), base(*of, *second), length.to_string()]
                };
                words("delete", some().iter().flat_map(delete).collect())
            }
            _ => words("unlocked", NAMES.map(str::to_owned).to_vec()),
        }
    }

    async fn step(&mut self, bytes: &[u8; 12]) -> Result<(), TestCaseError> {
        let [pause, session, holds, ..] = bytes;
        self.now += pick(&[0, 0, 1, 7, 1000], *pause);
        self.clock.stop_at(Duration::from_micros(self.now)).unwrap();
        let session = usize::from(session % 2);
        if let Some((waiting, _)) = self.waiting {
            let ends = if holds % 4 == 0 { waiting } else { 1 - waiting };
            return self.end(ends, holds % 2 == 1).await;
        }
        if self.open[session].is_some() {
            return self.end(session, holds % 3 > 0).await;
        }
        // One session at most keeps its transaction open, and so no two wait for each other.
        let holds = holds % 3 == 0 && self.open.iter().all(Option::is_none);
        let statement = self.statement(bytes);
        self.run(session, statement, holds).await
    }
}

/// Runs a test with a real server.
fn with_server<F: Future<Output = Verdict>>(test: impl FnOnce(PostgresServer, SteppedClock) -> F) {
    run_on_threads("postgres", async {
        let clock = SteppedClock::start().await?;
        let server = PostgresServer::start(&Options::new().with_clock(&clock)).await?;
        server.run_sql(sql!("schema")).await?;
        server.run_sql("GRANT ALL ON dlock_lock TO PUBLIC").await?;
        test(server, clock).await
    });
}

#[test]
fn each_statement_does_the_same_on_a_real_server() {
    with_server(|server, clock| async move {
        let mut pair = Pair::connect(&server, clock).await?;
        block_in_place(|| {
            explore(100, 40, |steps: &[[u8; 12]]| {
                Handle::current().block_on(async {
                    pair.clear().await.unwrap();
                    for bytes in steps {
                        pair.step(bytes).await?;
                    }
                    Ok(())
                })
            })
        })
    });
}

#[test]
fn a_real_server_sends_the_same_notifications() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let notify = texts(&["notify", "c", "x", "other", "y", "c", "x", "c", "z"]);
    with_server(|server, _| async move {
        let mut listener = PgListener::connect(&server.url()).await?;
        listener.listen("c").await?;
        let options: PgConnectOptions = server.url().parse()?;
        run(options.connect().await?, &notify).await?.1.map_err(Stop::failed)?;
        let mut real = Vec::new();
        for _ in 0..2 {
            real.push(timeout(LONGEST_WAIT, listener.recv()).await??.payload().to_owned());
        }
        let mut fake = Postgres::new(None);
        fake.begin(1, texts(&["listen", "c"]), BEGIN);
        let steps = fake.begin(2, notify, BEGIN);
        let [Step::Commit { session, transaction, syncs: false }] = *steps else {
            panic!("{steps:?}")
        };
        let sent: Vec<_> = fake.commit(session, transaction);
        let expected = real.iter().map(|text| Step::Send(1, texts(&["notification", text])));
        assert_eq!(sent[..sent.len() - 1], expected.collect::<Vec<_>>());
        Ok(())
    });
}

/// Writes an operation, up to its commit. Returns the transaction.
fn begin(server: &mut Postgres, session: u64, name: &str, op: &str, syncs: bool) -> u64 {
    let kind = if syncs { "apply_one" } else { "apply_one_without_sync" };
    let words = [kind, name, "0", "0", "", op, "0", "0"].map(str::to_owned).to_vec();
    server.begin(session, words, BEGIN);
    server.transaction(session).unwrap().0
}

fn write(server: &mut Postgres, name: &str, op: &str, syncs: bool) {
    let transaction = begin(server, 1, name, op, syncs);
    server.commit(1, transaction);
}

fn names(server: &Postgres) -> String {
    server.rows().keys().cloned().collect()
}

#[test]
fn a_crash_loses_the_commits_behind_the_last_safe_one() {
    let server = |mistake| {
        let mut server = Postgres::new(mistake);
        for (name, syncs) in [("a", false), ("b", true), ("c", false), ("d", false)] {
            write(&mut server, name, "K", syncs);
        }
        server
    };
    for (lost, left) in [(0, "abcd"), (1, "abc"), (2, "ab")] {
        let mut server = server(None);
        let before = server.crash(false, |most| most.min(lost));
        assert_eq!((names(&server).as_str(), before.len()), (left, lost));
        assert!(before.values().all(Option::is_some));
    }
    for (standby, mistake) in [(true, None), (false, Some("commit-not-awaited"))] {
        let mut server = server(mistake);
        server.crash(standby, |most| most);
        assert_eq!(names(&server), "");
    }
    let mut server = server(None);
    server.flush(3);
    server.crash(false, |most| most);
    assert_eq!(names(&server), "abc");
}

#[test]
fn a_crash_may_keep_a_commit_that_was_not_answered() {
    for (kept, left) in [(0, "a"), (1, "ab"), (2, "abc")] {
        let mut server = Postgres::new(None);
        write(&mut server, "a", "K", true);
        let numbers =
            [("b", 1), ("c", 2)].map(|(name, at)| begin(&mut server, at, name, "K", true));
        server.lock_all();
        server.crash(false, |most| most.min(kept));
        assert_eq!(names(&server), left);
        assert!(server.commit(1, numbers[0]).is_empty(), "it has ended");
    }
}

#[test]
fn another_program_and_a_closed_session_keep_their_locks() {
    let mut server = Postgres::new(None);
    assert_eq!(server.lock_all(), None, "there are no rows");
    write(&mut server, "a", "K", true);
    let other = server.lock_all().unwrap();
    let transaction = begin(&mut server, 1, "a", "R", true);
    server.closed(1);
    assert_eq!((server.transaction(1), server.written(1)), (Some((transaction, true)), vec![]));
    let refused = server.roll_back(1, transaction, Some(0), LOCK_TIMEOUT);
    assert_eq!(refused, [], "that is not its wait");
    let steps = server.roll_back(OTHER_PROGRAM, other, None, "");
    assert!(matches!(steps[..], [_, Step::Commit { session: 1, .. }]), "{steps:?}");
    server.commit(1, transaction);
    assert_eq!(server.rows()["a"].log, format!("K {BEGIN};R {BEGIN};"));
}

#[test]
fn a_message_may_arrive_in_parts_and_with_others() {
    let messages = [vec!["a", "", "ü x"], vec![], vec!["3 "]];
    let bytes = messages.iter().flat_map(|message| wire::encoded(message)).collect::<Vec<u8>>();
    for at in 0..bytes.len() {
        let mut received = bytes[..at].to_vec();
        let mut found: Vec<_> = std::iter::from_fn(|| wire::take(&mut received)).collect();
        received.extend(&bytes[at..]);
        found.extend(std::iter::from_fn(|| wire::take(&mut received)));
        assert_eq!(found, messages, "{at}");
    }
}
