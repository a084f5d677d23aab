//! What a machine says about itself, before any rule of the scheduler is applied.

use std::collections::{BTreeMap, BTreeSet};

use super::CpuSet;

/// The kernel's LOCAL_DISTANCE and REMOTE_DISTANCE (include/linux/topology.h).
pub const LOCAL_DISTANCE: u32 = 10;
pub const REMOTE_DISTANCE: u32 = 20;

/// The raw facts of a machine's online CPUs and nodes.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// One more than the highest possible CPU number.
    pub nr_cpu_ids: usize,
    pub online: CpuSet,
    /// CPUs that isolcpus= (or an isolated cpuset) keeps out of every domain.
    pub isolated: CpuSet,
    pub cpus: BTreeMap<usize, CpuFacts>,
    /// Online nodes; one without CPUs is among them.
    pub nodes: BTreeMap<usize, NodeFacts>,
    pub processor: Processor,
}

/// An online CPU's place. A mask holds at least the CPU itself, and online CPUs only.
#[derive(Clone, Debug, Default)]
pub struct CpuFacts {
    pub node: usize,
    /// physical_package_id; none where the kernel does not know.
    pub package: Option<i64>,
    /// topology/thread_siblings_list.
    pub threads: CpuSet,
    /// topology/cluster_cpus_list (on x86: the CPUs that share the L2 cache).
    pub cluster: CpuSet,
    /// topology/package_cpus_list.
    pub package_cpus: CpuSet,
    /// shared_cpu_list of the outermost data cache; none without a cache directory.
    pub cache: Option<CpuSet>,
    /// cpu_capacity; none where the architecture has no such file.
    pub capacity: Option<u32>,
}

/// An online node: its online CPUs, and the distance from it to each online node.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub cpus: CpuSet,
    pub distances: BTreeMap<usize, u32>,
}

/// Who made the processor, as far as the rules ask (from /proc/cpuinfo).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Empty where cpuinfo has none: not an x86.
    pub vendor: String,
    pub family: u32,
    pub model: u32,
}

impl Processor {
    pub fn is_x86(&self) -> bool {
        !self.vendor.is_empty()
    }

    /// node_reclaim_distance: RECLAIM_DISTANCE (30), raised to 32 for Zen by
    /// arch/x86/kernel/cpu/amd.c init_amd_zen_common() and hygon.c init_hygon().
    pub fn reclaim_distance(&self) -> u32 {
        let is_zen = self.vendor == "AuthenticAMD" && self.family >= 0x17;
        if is_zen || self.vendor == "HygonGenuine" { 32 } else { 30 }
    }
}

impl Facts {
    /// CPUs that take part in load balancing: cpu_map of build_sched_domains().
    pub fn balanced(&self) -> CpuSet {
        self.online.difference(&self.isolated)
    }

    /// Nodes in the kernel's N_CPU state: those with online CPUs, isolated or not.
    pub fn cpu_nodes(&self) -> impl Iterator<Item = (usize, &NodeFacts)> {
        self.nodes.iter().filter(|(_, node)| !node.cpus.is_empty()).map(|(&id, node)| (id, node))
    }

    /// node_distance(); the kernel's default where no table names the pair.
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        let known = self.nodes.get(&from).and_then(|node| node.distances.get(&to));
        let default = if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        known.copied().unwrap_or(default)
    }

    pub fn nr_packages(&self) -> usize {
        let ids: BTreeSet<i64> = self.cpus.values().filter_map(|cpu| cpu.package).collect();
        ids.len().max(1)
    }

    /// topology_num_nodes_per_package(): nodes with CPUs by packages, rounded up
    /// (arch/x86/kernel/cpu/topology.c topology_init_possible_cpus()). The kernel counts what
    /// firmware describes, absent and offline CPUs included; sysfs shows only what is online.
    pub fn nodes_per_package(&self) -> usize {
        self.cpu_nodes().count().div_ceil(self.nr_packages())
    }
}
