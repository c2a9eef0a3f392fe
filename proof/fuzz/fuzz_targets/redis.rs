#![no_main]

use dlock_redis::fuzzing::{error, info, keys, message, reply, topology, url, url_password};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dlock_fuzz::check(
    &[url, url_password, keys, reply, message, info, topology, error],
    data
));
