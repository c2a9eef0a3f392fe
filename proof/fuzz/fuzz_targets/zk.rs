#![no_main]

use dlock_zk::fuzzing::{acl, node, node_data, queue, segments, url, url_password};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dlock_fuzz::check(
    &[url, url_password, acl, segments, node, node_data, queue],
    data
));
