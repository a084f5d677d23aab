//! The kernel's table of levels, and which of them a machine has.

use super::Level;
use super::facts::Facts;
use super::numa::NumaTable;
use super::sd_flags::SdFlags;

/// A row of the kernel's level table (struct sched_domain_topology_level).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Smt,
    Cls,
    Mc,
    Pkg,
    Node,
    /// The position of its distance; the nearest is 1 (tl->numa_level).
    Numa(usize),
}

impl Row {
    pub fn name(self) -> &'static str {
        match self {
            Row::Smt => "SMT",
            Row::Cls => "CLS",
            Row::Mc => "MC",
            Row::Pkg => "PKG",
            Row::Node => "NODE",
            Row::Numa(_) => "NUMA",
        }
    }

    pub fn level(self) -> Level {
        match self {
            Row::Smt => Level::SMT,
            Row::Cls => Level::CLS,
            Row::Mc => Level::MC,
            Row::Pkg | Row::Node => Level::PKG,
            Row::Numa(position) => Level::numa_or_last(position),
        }
    }

    /// tl->sd_flags: cpu_smt_flags(), cpu_cluster_flags(), cpu_core_flags(), cpu_numa_flags().
    pub fn flags(self) -> SdFlags {
        match self {
            Row::Smt => SdFlags::SHARE_CPUCAPACITY | SdFlags::SHARE_LLC,
            Row::Cls => SdFlags::CLUSTER | SdFlags::SHARE_LLC,
            Row::Mc => SdFlags::SHARE_LLC,
            Row::Pkg | Row::Node => SdFlags::NONE,
            Row::Numa(_) => SdFlags::NUMA,
        }
    }
}

/// The level table: default_topology or x86_topology, then NODE and a NUMA row for each distance
/// (sched_init_numa()). SMT stays in it on a machine without threads: it vanishes for every CPU.
pub fn rows(facts: &Facts, numa: &NumaTable) -> Vec<Row> {
    let mut rows = vec![Row::Smt, Row::Cls, Row::Mc];
    if !has_nodes_in_package(facts) {
        rows.push(Row::Pkg);
    }
    rows.push(Row::Node);
    rows.extend((1..=numa.remote_distances().len()).map(Row::Numa));
    rows
}

/// arch/x86/kernel/smpboot.c build_sched_topology() leaves PKG out where NUMA levels lie inside it.
fn has_nodes_in_package(facts: &Facts) -> bool {
    facts.processor.is_x86() && facts.nodes_per_package() > 1
}
