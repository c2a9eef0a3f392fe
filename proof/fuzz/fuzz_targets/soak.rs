#![no_main]

use dlock_soak::fuzzing::{line, log};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dlock_fuzz::check(&[line, log], data));
