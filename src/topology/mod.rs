//! The kernel's scheduling domains of a machine: levels, spans and flags, for each CPU.
//!
//! Pure: a `Machine` is a value. `sysfs` reads one from a tree of files.

pub mod cpuset;

use std::collections::BTreeMap;
use std::fmt;

pub use cpuset::CpuSet;

/// Levels below the NUMA ones: SMT, CLS, MC, PKG (or NODE in its place).
pub const NR_LOCAL_LEVELS: usize = 4;
/// NUMA distances that have a level of their own; farther ones share the last.
pub const NR_NUMA_LEVELS: usize = 6;
/// All levels that a flag word has room for.
pub const NR_LEVELS: usize = NR_LOCAL_LEVELS + NR_NUMA_LEVELS;

/// A kind of sharing, nearest first. Its index is its bit in each flag's part of the flag word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    pub const SMT: Level = Level(0);
    pub const CLS: Level = Level(1);
    pub const MC: Level = Level(2);
    /// Spans the node, as the kernel's PKG does; NODE stands in its place where the kernel says so.
    pub const PKG: Level = Level(3);

    /// `NUMA1` is the nearest distance; `number` is 1..=NR_NUMA_LEVELS.
    pub fn numa(number: usize) -> Option<Level> {
        (1..=NR_NUMA_LEVELS).contains(&number).then(|| Level((NR_LOCAL_LEVELS + number - 1) as u8))
    }

    pub fn from_index(index: usize) -> Option<Level> {
        (index < NR_LEVELS).then_some(Level(index as u8))
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub fn is_numa(self) -> bool {
        self.index() >= NR_LOCAL_LEVELS
    }

    /// Every level, nearest first.
    pub fn all() -> impl Iterator<Item = Level> {
        (0..NR_LEVELS as u8).map(Level)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index() {
            0 => f.pad("SMT"),
            1 => f.pad("CLS"),
            2 => f.pad("MC"),
            3 => f.pad("PKG"),
            index => f.pad(&format!("NUMA{}", index - NR_LOCAL_LEVELS + 1)),
        }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The set of CPUs that one CPU sees at a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub level: Level,
    /// The kernel's name: SMT, CLS, MC, PKG, NODE or NUMA.
    pub name: String,
    pub span: CpuSet,
    /// The kernel's flag names with their SD_ prefix, in the kernel's bit order.
    pub flags: Vec<&'static str>,
}

/// An online CPU and its domains, bottom to top (empty for an isolated CPU).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub id: usize,
    /// NUMA node id (may have holes).
    pub node: usize,
    pub domains: Vec<Domain>,
}

impl Cpu {
    /// The CPU's view of a level; none where the level adds nothing for this CPU.
    pub fn domain(&self, level: Level) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.level == level)
    }

    /// The CPUs that share the last-level cache, as the kernel's sd_llc
    /// (highest domain with SD_SHARE_LLC); the CPU alone where no domain says so.
    pub fn llc_span(&self) -> CpuSet {
        self.domains
            .iter()
            .rev()
            .find(|domain| domain.flags.contains(&"SD_SHARE_LLC"))
            .map_or_else(|| CpuSet::from_iter([self.id]), |domain| domain.span.clone())
    }
}

/// A machine's online CPUs with their domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub cpus: BTreeMap<usize, Cpu>,
    /// One more than the highest possible CPU number (the kernel's nr_cpu_ids).
    pub nr_cpu_ids: usize,
    /// Last-level caches by the index that `topo` prints and `llcN` names: ordered by first CPU.
    pub llcs: Vec<CpuSet>,
    /// Things a user should know: farther distances folded into the last level, kernel and sysfs differ.
    pub notes: Vec<String>,
}

impl Machine {
    /// CPUs of a node, empty when there is no such node or it has none online.
    pub fn node_cpus(&self, node: usize) -> CpuSet {
        self.cpus.values().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
    }

    /// Ids of the nodes that have online CPUs, ascending.
    pub fn nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self.cpus.values().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The lowest level of `from` whose domain also holds `to`; none where they share none.
    pub fn lowest_common_level(&self, from: usize, to: usize) -> Option<Level> {
        let domains = &self.cpus.get(&from)?.domains;
        domains.iter().find(|domain| domain.span.contains(to)).map(|domain| domain.level)
    }

    /// Levels that exist for at least one CPU, nearest first.
    pub fn levels(&self) -> Vec<Level> {
        Level::all()
            .filter(|&level| self.cpus.values().any(|cpu| cpu.domain(level).is_some()))
            .collect()
    }
}
