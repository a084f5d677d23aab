//! The kernel's scheduling domains of a machine: levels, spans and flags, for each CPU.
//!
//! `sysfs` reads facts from a tree of files, `domains` turns them into a `Machine` by the kernel's
//! rules, `kernel` reads the domains that the kernel itself shows and holds the two against each
//! other. A `Machine` is a value: nothing in it changes when the machine does; read it again then.

pub mod command;
pub mod cpuset;
pub mod domains;
mod explain;
pub mod facts;
pub mod kernel;
mod numa;
mod rows;
mod sd_flags;
mod snc;
pub mod sysfs;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use cpuset::CpuSet;

use crate::error::Error;

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

    /// The NUMA level of a distance by its position (1 is the nearest); the last one from
    /// NR_NUMA_LEVELS on.
    pub fn numa_or_last(position: usize) -> Level {
        Level((NR_LOCAL_LEVELS + position.clamp(1, NR_NUMA_LEVELS) - 1) as u8)
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
    /// CPUs that isolcpus= keeps out of every domain (online or not).
    pub isolated: CpuSet,
    /// The distance of NUMA1, NUMA2, ...: those between nodes with CPUs, ascending. May hold more
    /// than NR_NUMA_LEVELS; the farther ones share the last level.
    pub numa_distances: Vec<u32>,
    /// Things a user should know: farther distances folded into the last level, kernel and sysfs differ.
    pub notes: Vec<String>,
}

impl Machine {
    /// The machine whose `sys/` and `proc/` are in `root` ("/" is this one): modelled from sysfs;
    /// where the kernel shows domains of its own and they differ, those, with a note.
    ///
    /// Errors (environment) name the file that cannot be read or makes no sense.
    pub fn from_root(root: &Path) -> Result<Machine, Error> {
        let facts = sysfs::read(root)?;
        let model = domains::machine(&facts);
        match kernel::read(root) {
            Ok(kernel) => Ok(kernel::prefer(model, &kernel, &facts)),
            Err(_) => Ok(model),
        }
    }

    /// The machine as sysfs alone describes it. Errors as `from_root`.
    pub fn model_from_root(root: &Path) -> Result<Machine, Error> {
        Ok(domains::machine(&sysfs::read(root)?))
    }

    /// The online CPUs.
    pub fn online(&self) -> CpuSet {
        self.cpus.keys().copied().collect()
    }

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

/// The distinct last-level caches, ordered by their first CPU.
fn distinct_llcs(cpus: &BTreeMap<usize, Cpu>) -> Vec<CpuSet> {
    let mut llcs: Vec<CpuSet> = vec![];
    let mut last = CpuSet::new();
    for cpu in cpus.values() {
        let span = cpu.llc_span();
        if span != last && !llcs.contains(&span) {
            llcs.push(span.clone());
        }
        last = span;
    }
    llcs.sort_by_key(CpuSet::first);
    llcs
}
