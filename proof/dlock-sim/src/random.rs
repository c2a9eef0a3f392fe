//! All randomness of the process, from one seed.
//!
//! Ids of claims, jitter, the hashers of `HashMap`, and tokio's choice between branches all come from
//! `getrandom` of the C library in the end. The definition in this program takes the place of it.

use std::cell::Cell;

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on, the random numbers of this thread follow from the seed.
pub(crate) fn seed(seed: u64) {
    STATE.set(Some(seed ^ 0x9E37_79B9_7F4A_7C15));
}

/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Fills a buffer: the function of the C library, for all code of this process.
///
/// # Safety
/// As for the function of the C library: `buffer` has room for `length` bytes.
#[expect(unsafe_code, reason = "the interface of the C library")]
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, length: usize, flags: u32) -> isize {
    let Some(mut state) = STATE.get() else {
        // SAFETY: the caller keeps the contract of the function.
        let read = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return isize::try_from(read).unwrap_or(-1);
    };
    // SAFETY: the caller gives a buffer of this length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&next(&mut state).to_le_bytes()[..chunk.len()]);
    }
    STATE.set(Some(state));
    isize::try_from(length).unwrap_or(-1)
}

/// The random numbers of the world. Each part of it has a generator of its own, so that a change in
/// one part does not change the others.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64, part: &str) -> Self {
        let part = crate::fnv(0, part.as_bytes());
        let mut rng = Self(seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ part);
        rng.any();
        rng
    }

    /// Any number.
    pub(crate) const fn any(&mut self) -> u64 {
        next(&mut self.0)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        u64::try_from((u128::from(self.any()) * u128::from(limit)) >> 64).unwrap_or(0)
    }

    /// A number in this range.
    pub(crate) fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Whether something happens that has this chance in a million.
    pub(crate) fn chance(&mut self, in_a_million: u64) -> bool {
        self.below(1_000_000) < in_a_million
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).unwrap_or(0)]
    }
}
