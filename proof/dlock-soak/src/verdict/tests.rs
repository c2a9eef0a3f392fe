use dlock_core::FencingToken;

use super::*;
use crate::{
    record::{Broke, Excuse, FaultRecord, KILL, Record, Run},
    resource::Write,
    short,
};

/// Returns the lines of one acquisition that was granted at 100 ns and released at 200 ns.
fn well(hold: u64, mode: &str, name: &str) -> String {
    let ask = format!("{hold} ask {hold} well {mode} 90 {name}\n");
    ask + &format!("{hold} got 100 {hold} 500\n{hold} let 200\n{hold} left 210 released\n")
}

fn report(log: &str) -> Report {
    with(log, Vec::new())
}

fn with(log: &str, mut records: Vec<Record>) -> Report {
    let at = Instant::from_nanos;
    records.extend(short::lines(0, log).into_iter().map(Record::Did));
    records.push(Record::Run(Run {
        began: at(0),
        names: Vec::new(),
        longest_lease: Duration::from_millis(500),
        faults_noted: true,
        calm: at(50),
        well: at(80),
        ended: at(40_000_000_000),
    }));
    Report::of(records).unwrap()
}

#[track_caller]
fn is_wrong(log: &str, what: &str) {
    let text = report(log).check().expect_err("it is wrong").into_text();
    assert!(text.contains(what), "{text}");
}

#[test]
fn a_correct_history_passes() {
    let log = well(1, "x", "a") + &well(2, "s", "b") + &well(3, "s", "b");
    let report = report(&(log + &well(4, "1/3", "c") + &well(5, "2/3", "c")));
    report.check().unwrap();
    assert_eq!(report.grants(), 5);
}

#[test]
fn each_kind_of_overlap_is_found() {
    is_wrong(&(well(1, "x", "a") + &well(2, "x", "a")), "two at once");
    is_wrong(&(well(1, "x", "a") + &well(2, "s", "a")), "together with");
    is_wrong(&(well(1, "2/3", "a") + &well(2, "2/3", "a")), "4 of 3 permits");
}

#[test]
fn a_token_that_falls_is_found() {
    let later = well(1, "x", "a").replace("90 a", "290 a").replace("got 100", "got 300");
    let later = later.replace("let 200", "let 400").replace("left 210", "left 410");
    is_wrong(&(well(2, "x", "a") + &later), "the later has the smaller token");
}

#[test]
fn failures_and_endless_waits_without_faults_are_found() {
    let right = well(1, "x", "a");
    is_wrong(&format!("{right}2 ask 2 well x 90 a\n2 not 900 Timeout late\n"), "stalled");
    is_wrong(&format!("{right}2 ask 2 storm x 90 a\n"), "stalled");
    is_wrong(
        &right.replace("well x 90", "calm x 60").replace("got 100", "got 70"),
        "nobody had it",
    );
    let late = 13_000_000_000_u64;
    let waits = format!("2 ask 2 well x 150 a\n2 got {late} 2 {late}1\n2 let {late}0\n");
    is_wrong(&(right + &waits), "was free for");
}

#[test]
fn an_error_that_no_fault_explains_is_found() {
    let odd = "2 ask 2 storm x 90 a\n2 not 900 Protocol can't be read\n";
    is_wrong(&(well(1, "x", "a") + odd), "odd");
    let usual = odd.replace("Protocol", "Unavailable");
    report(&(well(1, "x", "a") + &usual)).check().unwrap();
}

fn write(at: u64, token: u64, passed: bool) -> Record {
    let (at, token) = (Instant::from_nanos(at), FencingToken::new(token).unwrap());
    Record::Wrote(Write { at, grant: (0, token.get()), name: "a".to_owned(), token, passed })
}

#[test]
fn a_history_that_was_kept_gets_the_same_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    let log = well(1, "x", "a") + &well(2, "x", "a") + "- late 300 100\n- uses early 5 5 5\n";
    let (at, broke) = (Instant::from_nanos(7), "panicked".to_owned());
    let mut records = vec![
        Record::Fault(FaultRecord { at, until: at, fault: KILL.to_owned(), process: Some(3) }),
        Record::Fault(FaultRecord { at, until: at, fault: "flush".to_owned(), process: None }),
        Record::Broke(Broke { at, process: 0, broke }),
        write(150, 2, true),
        write(160, 1, false),
    ];
    for excuse in [None, Some(Excuse { at, excused_until: Instant::from_nanos(100) })] {
        records.extend(excuse.map(Record::Excuse));
        let first = with(&log, records.clone());
        first.write_history(&file).unwrap();
        let again = Report::read_history(&file).unwrap();
        assert_eq!(again.violations(), first.violations());
        assert_eq!(again.to_string(), first.to_string());
        assert_eq!((again.excused(), again.late_writes()), (first.excused(), 1));
        assert!(!again.violations().is_empty());
    }
    std::fs::write(&file, "{\"at\":1}\n").unwrap();
    assert!(Report::read_history(&file).is_err(), "not a record");
    std::fs::write(&file, "").unwrap();
    assert!(Report::read_history(&file).is_err(), "of which run?");
}

#[test]
fn excuses_are_counted_and_do_not_cover_tokens() {
    let log = well(1, "x", "a") + &well(2, "x", "a").replace("got 100", "got 150");
    let excuse = |at, until| {
        let (at, excused_until) = (Instant::from_nanos(at), Instant::from_nanos(until));
        with(&log, vec![Record::Excuse(Excuse { at, excused_until })])
    };
    assert_eq!(excuse(120, 130).excused(), 1);
    excuse(120, 130).check().unwrap();
    assert_eq!(excuse(160, 165).excused(), 0, "they overlapped before");
    assert!(excuse(160, 165).check().is_err());
    let late = write(400, 1, true);
    let excuse = Excuse { at: Instant::from_nanos(120), excused_until: Instant::from_nanos(130) };
    let records = vec![Record::Excuse(excuse), write(300, 2, true), late];
    let text = with(&log, records).check().unwrap_err().into_text();
    assert!(text.contains("passed late"), "{text}");
}

#[test]
fn forbidden_acts_of_a_process_are_found() {
    let (at, broke) = (Instant::from_nanos(7), "a process has ended by itself".to_owned());
    let wrong = with(&well(1, "x", "a"), vec![Record::Broke(Broke { at, process: 2, broke })]);
    let text = wrong.check().unwrap_err().into_text();
    assert!(text.contains("process 2: a process has ended by itself; and 0 others"), "{text}");
}

#[test]
fn late_losses_bypasses_and_leaks_are_found() {
    let right = well(1, "x", "a");
    let late = "2 ask 2 storm s 100 b\n2 got 110 2 120\n2 lost 200000000 expired\n";
    is_wrong(&(right.clone() + late + &well(3, "s", "b")), "late: lost()");
    let ms = 1_000_000_u64;
    let later = format!(
        "2 ask 2 storm x 300 a fair\n2 got {} 2 {}\n2 let {}\n\
         3 ask 3 storm x {} a fair\n3 got {} 3 {}\n3 let {}\n",
        1900 * ms,
        1910 * ms,
        1901 * ms,
        1700 * ms,
        1800 * ms,
        1810 * ms,
        1801 * ms
    );
    let later = later.replace(" 2 1910", " 4 1910");
    // A release that takes long shows that the store was slow.
    let released = |at: u64| {
        let (release_began, left) = (1000 * ms, at * ms);
        format!(
            "4 ask 4 storm x 300 b\n4 got 900 1 {left}\n4 let {release_began}\n4 left {left} released\n"
        )
    };
    is_wrong(&(right.clone() + &later + &released(1050)), "passed over 1 times");
    assert!(report(&(right.clone() + &later + &released(1150))).bypasses().is_empty());
    let until = 10_000 * ms;
    let stuck = format!("2 ask 2 storm x 300 a\n2 got {until} 2 {until}9\n2 let {until}\n");
    is_wrong(&(right.clone() + &stuck), "nobody had it for");
    is_wrong(&(right + "- uses early 9 9 9\n- uses end 9 99 9\n"), "99 tasks after 9");
}
