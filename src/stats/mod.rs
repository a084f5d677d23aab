//! What the scheduler counted: snapshots, differences, sums and the laws between counters.
//!
//! Pure: a snapshot is a value, made of the words that BPF wrote.

pub mod counters;
pub mod events;
pub mod json;
pub mod latency;
mod laws;

use std::mem::{offset_of, size_of};

use serde::{Deserialize, Serialize};

use crate::bpf::intf::{NR_LATENCY_BUCKETS, cpu_counter, cpu_stat, level_counter};
use crate::topology::{CpuSet, Level, NR_LEVELS};
pub use counters::{CPU_COUNTERS, Counter, LEVEL_COUNTERS};
pub use laws::{LAWS, Law, Standing, Verdict, verdicts};

const WORDS_PER_ROW: usize = size_of::<cpu_stat>() / size_of::<u64>();
const FIRST_LEVEL_WORD: usize = offset_of!(cpu_stat, level) / size_of::<u64>();
const FIRST_LATENCY_WORD: usize = offset_of!(cpu_stat, latency) / size_of::<u64>();

/// Buckets of a latency histogram: bucket `b` counts times of `2^(b-1)` to `2^b` us, the
/// first those below 1 us, the last all that are longer.
pub const NR_BUCKETS: usize = NR_LATENCY_BUCKETS as usize;
/// Histograms of a row: one per level, and the last for wakeups to the waker's own CPU.
pub const NR_HISTOGRAMS: usize = NR_LEVELS + 1;

/// All counters at one moment. Row `n` is CPU `n`'s; the last row is the timer's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Counts attaches; counters of different epochs cannot be subtracted.
    pub epoch: u64,
    /// The flags' generation when this was read.
    pub generation: u64,
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Tasks that wait in a queue, read from the queues themselves.
    pub waiting_now: u64,
    pub rows: Vec<Row>,
}

/// The counters of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// At `CPU_COUNTERS`' indices.
    pub cpu: Vec<u64>,
    /// At `LEVEL_COUNTERS`' indices, then by level index.
    pub level: Vec<[u64; NR_LEVELS]>,
    /// Wakeups by the time until the task ran, by the level between waker and chosen CPU.
    #[serde(default)]
    pub latency: Vec<[u64; NR_BUCKETS]>,
}

impl Row {
    /// Reads a row as `struct cpu_stat` lays it out.
    fn from_words(words: &[u64]) -> Row {
        let levels = words[FIRST_LEVEL_WORD..].chunks_exact(NR_LEVELS);
        Row {
            cpu: words[..CPU_COUNTERS.len()].to_vec(),
            level: levels
                .take(LEVEL_COUNTERS.len())
                .map(|row| std::array::from_fn(|level| row[level]))
                .collect(),
            latency: words[FIRST_LATENCY_WORD..]
                .chunks_exact(NR_BUCKETS)
                .take(NR_HISTOGRAMS)
                .map(|histogram| std::array::from_fn(|bucket| histogram[bucket]))
                .collect(),
        }
    }

    pub fn zero() -> Row {
        Row {
            cpu: vec![0; CPU_COUNTERS.len()],
            level: vec![[0; NR_LEVELS]; LEVEL_COUNTERS.len()],
            latency: vec![[0; NR_BUCKETS]; NR_HISTOGRAMS],
        }
    }

    fn combine(&self, other: &Row, with: impl Fn(u64, u64) -> u64) -> Row {
        let levels = self.level.iter().zip(&other.level);
        let latency = self.latency.iter().zip(&other.latency);
        Row {
            cpu: self.cpu.iter().zip(&other.cpu).map(|(a, b)| with(*a, *b)).collect(),
            level: levels.map(|(a, b)| std::array::from_fn(|i| with(a[i], b[i]))).collect(),
            latency: latency.map(|(a, b)| std::array::from_fn(|i| with(a[i], b[i]))).collect(),
        }
    }

    fn is_at_least(&self, other: &Row) -> bool {
        let levels = self.level.as_flattened().iter().zip(other.level.as_flattened());
        let latency = self.latency.as_flattened().iter().zip(other.latency.as_flattened());
        self.cpu.iter().zip(&other.cpu).chain(levels).chain(latency).all(|(a, b)| a >= b)
    }

    /// Whether it has the counters that this build names; another build's may not.
    pub fn is_named(&self) -> bool {
        self.cpu.len() == CPU_COUNTERS.len()
            && self.level.len() == LEVEL_COUNTERS.len()
            && self.latency.len() == NR_HISTOGRAMS
    }

    /// A counter of intf.h's `cpu_counter`.
    pub fn get(&self, counter: cpu_counter) -> u64 {
        self.cpu[counter as usize]
    }

    /// A counter of intf.h's `level_counter` at one level.
    pub fn at(&self, level: Level, counter: level_counter) -> u64 {
        self.level[counter as usize][level.index()]
    }
}

impl Snapshot {
    /// Splits the words of the table into rows.
    pub fn rows_from_words(words: &[u64]) -> Vec<Row> {
        words.chunks_exact(WORDS_PER_ROW).map(Row::from_words).collect()
    }

    /// What was counted since `earlier`; none if the scheduler was attached anew in between.
    ///
    /// A counter that went back is another attachment too: epochs begin anew with each process.
    pub fn since(&self, earlier: &Snapshot) -> Option<Snapshot> {
        let is_later = self.at_ns >= earlier.at_ns && self.rows.len() == earlier.rows.len();
        let has_gone_on = || self.rows.iter().zip(&earlier.rows).all(|(a, b)| a.is_at_least(b));
        if self.epoch != earlier.epoch || !is_later || !has_gone_on() {
            return None;
        }
        let rows = self.rows.iter().zip(&earlier.rows);
        Some(Snapshot {
            at_ns: self.at_ns.saturating_sub(earlier.at_ns),
            rows: rows.map(|(now, then)| now.combine(then, u64::wrapping_sub)).collect(),
            ..self.clone()
        })
    }

    /// The sum over all rows.
    pub fn total(&self) -> Row {
        self.rows.iter().fold(Row::zero(), |sum, row| sum.combine(row, u64::wrapping_add))
    }

    /// The sum over the rows of some CPUs.
    pub fn sum_of(&self, cpus: &CpuSet) -> Row {
        let rows = cpus.iter().filter_map(|cpu| self.rows.get(cpu));
        rows.fold(Row::zero(), |sum, row| sum.combine(row, u64::wrapping_add))
    }
}
