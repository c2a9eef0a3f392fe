#[cfg(test)] mod t {}
