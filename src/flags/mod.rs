//! The flag matrix: one bit for every flag, level and CPU, in one 64-bit word for each CPU.
//!
//! Pure: text and a `Machine` go in, words and text come out. `Flag` and `Word` are the bits,
//! `Matrix` holds the words, `parse` turns the one spelling `LEVEL[@SET].FLAG=on|off` into
//! assignments, `Preset` names whole matrices, and `View` is what `get` shows.
//!
//! The words are a value here. Who publishes them to the scheduler stores whole words first and the
//! generation last.

mod assign;
mod describe;
mod leases;
mod matrix;
pub(crate) mod nearest;
mod preset;
mod view;

#[cfg(test)]
pub(crate) mod fixture;

use std::fmt;

pub use assign::{Assignment, parse};
pub use leases::{Holder, LeasedMatrix};
pub use matrix::{Change, Matrix};
pub use preset::Preset;
pub use view::{Cell, Row, View};

use crate::topology::{Level, Machine, NR_LEVELS, NR_LOCAL_LEVELS};

/// Flags that a word has room for.
pub const NR_FLAGS: usize = 6;

const _: () = assert!(NR_FLAGS * NR_LEVELS <= u64::BITS as usize);

/// A scheduling-domain flag. Its index is its place in the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    WakeAffine,
    BalanceNewidle,
    BalanceFork,
    BalanceWake,
    BalanceExec,
    LoadBalance,
}

impl Flag {
    /// Every flag, in the order of the word.
    pub const ALL: [Flag; NR_FLAGS] = [
        Flag::WakeAffine,
        Flag::BalanceNewidle,
        Flag::BalanceFork,
        Flag::BalanceWake,
        Flag::BalanceExec,
        Flag::LoadBalance,
    ];

    pub fn index(self) -> usize {
        self as usize
    }

    /// The kernel's name with its SD_ prefix, as `Domain::flags` has it.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Flag::WakeAffine => "SD_WAKE_AFFINE",
            Flag::BalanceNewidle => "SD_BALANCE_NEWIDLE",
            Flag::BalanceFork => "SD_BALANCE_FORK",
            Flag::BalanceWake => "SD_BALANCE_WAKE",
            Flag::BalanceExec => "SD_BALANCE_EXEC",
            Flag::LoadBalance => "SD_LOAD_BALANCE",
        }
    }

    pub fn name(self) -> &'static str {
        &self.kernel_name()["SD_".len()..]
    }

    /// Reads a name or an alias in any case, with `-` for `_`, with or without SD_.
    pub fn from_name(name: &str) -> Option<Flag> {
        let name = canonical_name(name);
        let is_named = |flag: &Flag| flag.name() == name || flag.aliases().contains(&name.as_str());
        Flag::ALL.into_iter().find(is_named)
    }

    /// Why this build cannot deliver the flag; none when it can. `n/a` and refusals come from here.
    pub fn undelivered(self) -> Option<&'static str> {
        match self {
            Flag::WakeAffine | Flag::BalanceNewidle | Flag::BalanceFork | Flag::BalanceWake => None,
            Flag::BalanceExec => Some("sched_ext never delivers exec balancing"),
            Flag::LoadBalance => Some("this build has no periodic balance yet"),
        }
    }

    /// The flags that can be set, in the order of the word.
    pub fn delivered() -> impl Iterator<Item = Flag> {
        Flag::ALL.into_iter().filter(|flag| flag.undelivered().is_none())
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn canonical_name(name: &str) -> String {
    let name = name.to_ascii_uppercase().replace('-', "_");
    name.strip_prefix("SD_").map(str::to_owned).unwrap_or(name)
}

/// The flags of one CPU, flag-major: bit = flag.index() * NR_LEVELS + level.index().
///
/// ```text
/// 63..60 | 59..50 LOAD | 49..40 EXEC | 39..30 WAKE | 29..20 FORK | 19..10 NEWIDLE | 9..0 AFFINE
///   0    |                      each: NUMA6..NUMA1 PKG MC CLS SMT
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    pub fn get(self, flag: Flag, level: Level) -> bool {
        self.levels(flag) & level_bit(level) != 0
    }

    pub fn set(&mut self, flag: Flag, level: Level, on: bool) {
        self.set_levels(flag, level_bit(level), on);
    }

    pub fn with(mut self, flag: Flag, level: Level, on: bool) -> Word {
        self.set(flag, level, on);
        self
    }

    /// The levels that have the flag, as a mask of level indices.
    pub fn levels(self, flag: Flag) -> u16 {
        ((self.0 >> shift(flag)) & u64::from(ALL_LEVELS)) as u16
    }

    /// Sets the flag at every level of the mask.
    pub fn set_levels(&mut self, flag: Flag, levels: u16, on: bool) {
        let bits = u64::from(levels & ALL_LEVELS) << shift(flag);
        match on {
            true => self.0 |= bits,
            false => self.0 &= !bits,
        }
    }
}

/// The mask of every level.
const ALL_LEVELS: u16 = (1 << NR_LEVELS) - 1;
/// The mask of every NUMA level.
const NUMA_LEVELS: u16 = ALL_LEVELS & !((1 << NR_LOCAL_LEVELS) - 1);

fn shift(flag: Flag) -> usize {
    flag.index() * NR_LEVELS
}

fn level_bit(level: Level) -> u16 {
    1 << level.index()
}

/// The level's name on this machine: NODE where the kernel put it in PKG's place.
fn level_name(level: Level, machine: &Machine) -> String {
    let mut domains = machine.cpus.values().filter_map(|cpu| cpu.domain(level));
    match domains.next() {
        Some(domain) if domain.name == "NODE" => "NODE".to_owned(),
        _ => level.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bit_is_flag_major() {
        let word = Word::default().with(Flag::BalanceNewidle, Level::MC, true);
        assert_eq!(word, Word(1 << 12));
        assert_eq!(word.levels(Flag::BalanceNewidle), 1 << 2);
        assert_eq!(word.levels(Flag::WakeAffine), 0);
    }

    #[test]
    fn a_name_is_read_in_any_spelling() {
        for name in ["BALANCE_NEWIDLE", "sd_balance-newidle", "Newidle", "SD-NEWIDLE"] {
            assert_eq!(Flag::from_name(name), Some(Flag::BalanceNewidle), "{name}");
        }
        for name in ["FORK", "WAKE", "SD_", "", "SD_SD_WAKE_AFFINE"] {
            assert_eq!(Flag::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_flag_reads_its_own_names() {
        for (index, flag) in Flag::ALL.into_iter().enumerate() {
            assert_eq!(flag.index(), index);
            assert_eq!(Flag::from_name(flag.name()), Some(flag));
            assert_eq!(Flag::from_name(flag.kernel_name()), Some(flag));
        }
    }

    proptest! {
        #[test]
        fn setting_one_bit_leaves_the_others_alone(
            bits in 0u64..1 << 60, flag in 0..NR_FLAGS, level in 0..NR_LEVELS, on: bool
        ) {
            let (flag, level) = (Flag::ALL[flag], Level::from_index(level).unwrap());
            let word = Word(bits).with(flag, level, on);
            prop_assert_eq!(word.get(flag, level), on);
            prop_assert!((word.0 ^ bits).count_ones() <= 1);
            let other = Word(bits).get(flag, level);
            prop_assert_eq!(word.with(flag, level, other), Word(bits));
        }
    }
}
