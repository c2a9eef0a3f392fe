//! The log of an SQLite file, in which everything stands that was written.
//!
//! It has a head of 32 bytes, and then a frame for each page: a head of 24 bytes, and the page. The
//! last frame of a transaction says how long the file is then, the others say 0. SQLite has no locks
//! on it that closing it could drop: they are on the file and on the shared memory.

use std::{fs, path::PathBuf};

use dlock_testlab::Stop;

use super::cost::Cost;

const HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

/// The log of this file.
#[derive(Debug)]
pub(crate) struct Log(pub(crate) PathBuf);

impl Log {
    /// What stands in it.
    pub(crate) fn cost(&self) -> Result<Cost, Stop> {
        let log = fs::read(&self.0)?;
        let page = number(&log, 8).ok_or_else(|| Stop::failed("a log without a head"))?;
        let frame = FRAME_HEAD + usize::try_from(page).map_err(|_| Stop::failed("a huge page"))?;
        let mut cost = Cost::default();
        for frame in log[HEAD..].chunks_exact(frame) {
            // What an earlier log has left there carries other numbers than the head.
            if frame[8..16] != log[16..24] {
                break;
            }
            cost.bytes += u64::try_from(frame.len()).unwrap_or_default();
            cost.round_trips += u64::from(number(frame, 4) != Some(0));
        }
        Ok(cost)
    }
}

/// The number of four bytes at this place.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}
