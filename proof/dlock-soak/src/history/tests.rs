use super::*;
use crate::short;
use dlock_testkit::history::{exclusion, tokens, wake_up};

fn acquisitions(logs: &[(&str, Option<u64>)]) -> Vec<Acquisition> {
    let logs = || logs.iter().enumerate();
    let lines: Vec<Line> = logs().flat_map(|(n, (text, _))| short::lines(n, text)).collect();
    let killed = logs().filter_map(|(n, (_, at))| Some((n, Instant::from_nanos((*at)?))));
    super::acquisitions(&lines, &killed.collect()).unwrap()
}

const LATER: &str = "1 ask 0 storm x 2 a\n1 got 50 9 90\n1 let 60\n1 left 61 released\n";

#[test]
fn a_hold_ends_with_the_first_of_its_ends() {
    for (end, at) in [
        ("1 let 30\n", 30),
        ("1 lost 20 revoked\n1 let 30\n", 20),
        ("1 keep 70\n", 70),
        ("1 keep 35\n", 40),
    ] {
        let text = format!("1 ask 0 storm x 1 a\n1 got 5 7 40\n{end}");
        let acquisition = &acquisitions(&[(&text, None)])[0];
        assert_eq!(acquisition.ended().as_nanos(), at, "{end}");
    }
}

#[test]
fn a_number_that_may_be_another_processs_is_refused() {
    let read = |process, text| super::acquisitions(&short::lines(process, text), &BTreeMap::new());
    assert!(read(99_999, "999999999 ask 999999 storm x 1 a\n").is_ok());
    assert!(read(100_000, "1 ask 1 storm x 1 a\n").is_err());
    for line in ["1000000000 ask 0 storm x 1 a\n", "1 ask 1000000 storm x 1 a\n"] {
        assert!(read(1, line).is_err(), "{line}");
    }
    let line = format!("{} ask {} storm x 1 a\n", u64::MAX, usize::MAX);
    assert!(read(1, &line).is_err());
}

#[test]
fn a_line_that_was_cut_off_is_left_out_and_no_other() {
    let line = &short::lines(0, "1 ask 0 storm x 1 a\n")[0];
    let half = &line.to_string()[..30];
    assert_eq!(read(&format!("{line}\n{half}")).unwrap().len(), 1);
    assert!(read(&format!("{half}\n{line}\n")).is_err());
    assert!(super::acquisitions(&short::lines(0, "1 let 5\n"), &BTreeMap::new()).is_err());
}

#[test]
fn an_aborted_task_holds_no_more_and_later_ones_do() {
    let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n- abort 45 1\n";
    let both = acquisitions(&[(first, None), (LATER, None)]);
    assert!(exclusion::check(&client_holds(&both)).is_ok());
    assert!(!acquisitions(&[("1 ask 0 storm x 1 a\n- abort 45 1\n", None)])[0].is_open());
    for next in ["1 ask 1 storm x 1 a\n1 got 5 7 80\n- abort 45 1\n", &first.replace("45", "55")] {
        let both = acquisitions(&[(next, None), (LATER, None)]);
        assert!(exclusion::check(&client_holds(&both)).is_err(), "{next}");
    }
}

#[test]
fn an_excuse_ends_only_the_holds_that_it_covers() {
    let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 70\n";
    let both = acquisitions(&[(first, None), (LATER, None)]);
    let is_right = |at, until| {
        let at = Instant::from_nanos(at);
        let excuse = Excuse { at, excused_until: Instant::from_nanos(until) };
        exclusion::check(&excused_holds(&both, &[excuse])).is_ok()
    };
    assert!(is_right(40, 45));
    assert!(is_right(4, 7), "it began within the fault");
    assert!(!is_right(55, 58), "they overlapped before");
    assert!(!is_right(1, 4), "it began after the fault");
}

#[test]
fn an_overlap_of_two_processes_is_found() {
    let first = "1 ask 0 storm x 1 a\n1 got 5 7 80\n1 let 55\n";
    assert!(
        exclusion::check(&client_holds(&acquisitions(&[(first, None), (LATER, None)]))).is_err()
    );
    let first = first.replace("let 55", "let 45");
    assert!(
        exclusion::check(&client_holds(&acquisitions(&[(&first, None), (LATER, None)]))).is_ok()
    );
}

#[test]
fn a_killed_process_holds_no_more_and_keeps_its_token() {
    let first = "1 ask 0 storm x 1 a\n1 got 5 10 80\n1 ke";
    let dead = acquisitions(&[(first, Some(45)), (LATER, None)]);
    assert!(exclusion::check(&client_holds(&dead)).is_ok());
    assert!(tokens::check(&grants(&dead)).is_ok());
    let asked_after = LATER.replace("storm x 2", "storm x 20");
    let dead = acquisitions(&[(first, Some(45)), (&asked_after, None)]);
    assert!(tokens::check(&grants(&dead)).is_err(), "9 after 10");
    let alive = acquisitions(&[(first, Some(55)), (LATER, None)]);
    assert!(exclusion::check(&client_holds(&alive)).is_err());
}

#[test]
fn a_grant_reported_after_its_deadline_is_no_hold() {
    let late = "1 ask 0 storm x 1 a\n1 got 55 5 40\n1 let 58\n";
    let both = acquisitions(&[(late, None), (LATER, None)]);
    assert!(exclusion::check(&client_holds(&both)).is_ok());
    assert_eq!((client_holds(&both).holds().len(), grants(&both).holds().len()), (1, 2));
}

#[test]
fn a_long_wait_counts_from_the_end_of_the_faults() {
    let patient = "1 ask 0 storm x 1 a\n1 got 7005 7 7090\n1 let 7010\n1 left 7011 released\n";
    let well = "1 ask 0 well x 7000 a\n1 got 7020 9 7090\n1 let 7030\n1 left 7031 released\n";
    let all = without_faults(&acquisitions(&[(patient, None), (well, None)]));
    let within = |nanos| wake_up::check(&all, std::time::Duration::from_nanos(nanos));
    assert!(within(10).is_ok() && within(4).is_err());
}

#[test]
fn a_store_that_forgets_whom_it_promised_is_noticed() {
    let acquisition = |end: &str| {
        let text = format!("1 ask 0 storm x 1 a\n1 got 5 7 40\n{end}");
        acquisitions(&[(&text, None)]).remove(0)
    };
    assert!(acquisition("1 lost 30 revoked\n").was_revoked());
    assert!(!acquisition("1 lost 41 expired\n").was_revoked());
    assert!(acquisition("1 let 30\n1 left 35 gone\n").was_gone());
    assert!(!acquisition("1 let 30\n1 left 45 gone\n").was_gone(), "its lease may have ended");
}
