#![no_main]

use dlock_core::fuzzing::{
    claim, host, machine_log, machine_text, name, note, numbers, url, url_password,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dlock_fuzz::check(
    &[name, note, url, url_password, host, numbers, claim, machine_text, machine_log],
    data
));
