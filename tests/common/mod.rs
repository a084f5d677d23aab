//! What the VM tests share: the scheduler under test, workloads, and where tasks are.
//!
//! Each test binary is built for both rings: outside the VM its tests are ignored.

#![allow(dead_code)]

pub mod load;
pub mod scheduler;
pub mod storm;

use std::time::{Duration, Instant};

/// Looks every 50 ms until `condition` holds; false when it does not within `limit`.
///
/// The limit is for a machine that hangs: no test's meaning depends on how long it took.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Small, seeded and repeatable (xorshift64*, Vigna 2016): which random case ran can be said.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
