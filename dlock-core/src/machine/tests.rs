#[cfg(test)]
mod t {}
