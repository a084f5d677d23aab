//! The kernel's rules that turn facts into domains: build, then drop what adds nothing.
//!
//! Each CPU gets a stack of domains, one for each row of the kernel's level table, until one spans
//! all CPUs that take part (kernel/sched/topology.c build_sched_domains()); then rows that add
//! nothing for this CPU are dropped (cpu_attach_domain()). Pure: the same facts give the same
//! machine. What the facts cannot say (SD_ASYM_PACKING of ITMT, cpusets, relax_domain_level) is
//! not modelled; where it matters the kernel's own domains are read instead (`kernel`).

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::numa::NumaTable;
use super::rows::{self, Row};
use super::sd_flags::SdFlags;
use super::snc::scheduling_distance;
use super::{Cpu, CpuSet, Domain, Level, Machine, NR_NUMA_LEVELS};

/// The machine as the kernel's rules make it from these facts.
pub fn machine(facts: &Facts) -> Machine {
    let model = Model::new(facts);
    let cpus: BTreeMap<usize, Cpu> = facts
        .cpus
        .iter()
        .map(|(&id, cpu)| (id, Cpu { id, node: cpu.node, domains: model.domains(id) }))
        .collect();
    Machine {
        llcs: super::distinct_llcs(&cpus),
        cpus,
        nr_cpu_ids: facts.nr_cpu_ids,
        isolated: facts.isolated.clone(),
        notes: notes(facts, &model.numa),
        numa_distances: model.numa.remote_distances().to_vec(),
    }
}

/// A domain under construction (struct sched_domain).
struct Sd {
    row: Row,
    span: CpuSet,
    flags: SdFlags,
    /// Whether its groups (the domains of the row below) are more than one.
    has_groups: bool,
}

/// The rules, with the facts that they are applied to.
pub(super) struct Model<'a> {
    facts: &'a Facts,
    pub(super) numa: NumaTable,
    rows: Vec<Row>,
    /// cpu_map: the CPUs that get domains.
    balanced: CpuSet,
    /// CPUs of equal capacity (asym_cap_list).
    capacities: Vec<CpuSet>,
    has_multicore: bool,
}

impl<'a> Model<'a> {
    pub(super) fn new(facts: &'a Facts) -> Self {
        let numa = NumaTable::new(facts);
        Model {
            rows: rows::rows(facts, &numa),
            balanced: facts.balanced(),
            capacities: capacities(facts),
            has_multicore: has_multicore(facts),
            numa,
            facts,
        }
    }

    /// The domains of a CPU, bottom to top; none for an isolated one.
    fn domains(&self, cpu: usize) -> Vec<Domain> {
        if !self.balanced.contains(cpu) {
            return vec![];
        }
        fold(attach(self.build(cpu)))
    }

    /// The inner loop of build_sched_domains(): stops at the first row that spans everything.
    fn build(&self, cpu: usize) -> Vec<Sd> {
        let mut stack: Vec<Sd> = vec![];
        for &row in &self.rows {
            let sd = self.build_one(row, cpu, stack.last_mut());
            let is_top = sd.span == self.balanced;
            stack.push(sd);
            if is_top {
                break;
            }
        }
        stack
    }

    /// build_sched_domain(): a span never loses CPUs of the one below ("arch topology borken").
    fn build_one(&self, row: Row, cpu: usize, child: Option<&mut Sd>) -> Sd {
        let mut span = self.mask(row, cpu).intersection(&self.balanced);
        let asymmetry = self.asymmetry(&span);
        let mut has_groups = span.len() > 1;
        if let Some(child) = child {
            if asymmetry.has(SdFlags::ASYM_CPUCAPACITY) {
                child.flags = child.flags.without(SdFlags::PREFER_SIBLING);
            }
            span = span.union(&child.span);
            has_groups = span != child.span;
        }
        Sd { row, span, flags: self.flags(row) | asymmetry, has_groups }
    }

    /// tl->mask(): which CPUs the row shows this CPU, isolated ones included.
    fn mask(&self, row: Row, cpu: usize) -> CpuSet {
        let facts = &self.facts.cpus[&cpu];
        match row {
            Row::Smt => facts.threads.clone(),
            Row::Cls => self.cluster(cpu),
            Row::Mc => self.core_group(cpu),
            Row::Pkg => self.node_cpus(cpu),
            Row::Node => self.numa.mask(0, facts.node),
            Row::Numa(position) => self.numa.mask(position, facts.node),
        }
    }

    fn node_cpus(&self, cpu: usize) -> CpuSet {
        self.facts.nodes[&self.facts.cpus[&cpu].node].cpus.clone()
    }

    /// cpu_clustergroup_mask(): the L2's CPUs on x86; elsewhere (drivers/base/arch_topology.c) the
    /// cluster, unless it is no smaller than the core group.
    fn cluster(&self, cpu: usize) -> CpuSet {
        let facts = &self.facts.cpus[&cpu];
        let is_useless = || self.core_group(cpu).is_subset(&facts.cluster);
        if !self.facts.processor.is_x86() && is_useless() {
            return facts.threads.clone();
        }
        facts.cluster.clone()
    }

    /// cpu_coregroup_mask(): what MC spans.
    fn core_group(&self, cpu: usize) -> CpuSet {
        if self.facts.processor.is_x86() { self.llc_in_node(cpu) } else { self.smallest_group(cpu) }
    }

    /// arch/x86/kernel/smpboot.c match_llc(): the cache's CPUs, cut at the node; alone on a machine
    /// whose boot CPU saw one core in a package (has_mp of set_cpu_sibling_map()).
    fn llc_in_node(&self, cpu: usize) -> CpuSet {
        match &self.facts.cpus[&cpu].cache {
            Some(cache) if self.has_multicore => cache.intersection(&self.node_cpus(cpu)),
            _ => CpuSet::from_iter([cpu]),
        }
    }

    /// drivers/base/arch_topology.c cpu_coregroup_mask(): the smallest of node, package and cache,
    /// widened to the cluster.
    fn smallest_group(&self, cpu: usize) -> CpuSet {
        let facts = &self.facts.cpus[&cpu];
        let candidates = [Some(&facts.package_cpus), facts.cache.as_ref()];
        let smallest = candidates.into_iter().flatten().fold(self.node_cpus(cpu), |least, next| {
            if next.is_subset(&least) { next.clone() } else { least }
        });
        if smallest.is_subset(&facts.cluster) { facts.cluster.clone() } else { smallest }
    }

    /// sd_init(): the flags that a row's domain starts with.
    fn flags(&self, row: Row) -> SdFlags {
        let base =
            SdFlags::BALANCE_NEWIDLE | BASE_UP_TO_RECLAIM | SdFlags::PREFER_SIBLING | row.flags();
        let Row::Numa(position) = row else {
            return base;
        };
        let numa = base.without(SdFlags::PREFER_SIBLING) | SdFlags::SERIALIZE;
        if self.numa.distance(position) > self.facts.processor.reclaim_distance() {
            return numa.without(BASE_UP_TO_RECLAIM);
        }
        numa
    }

    /// The flags of a level where nothing degenerates and capacities are equal.
    pub(super) fn usual_flags(&self, level: Level) -> SdFlags {
        let fits = |row: &&Row| row.level() == level;
        self.rows.iter().find(fits).map_or(SdFlags::NONE, |&row| self.flags(row))
    }

    /// asym_cpu_capacity_classify(): whether CPUs of different capacity meet in the span.
    fn asymmetry(&self, span: &CpuSet) -> SdFlags {
        if self.capacities.len() < 2 {
            return SdFlags::NONE;
        }
        let inside = self.capacities.iter().filter(|equal| equal.intersects(span)).count();
        let missed = self
            .capacities
            .iter()
            .any(|equal| !equal.intersects(span) && equal.intersects(&self.balanced));
        match (inside, missed) {
            (0 | 1, _) => SdFlags::NONE,
            (_, true) => SdFlags::ASYM_CPUCAPACITY,
            (_, false) => SdFlags::ASYM_CPUCAPACITY | SdFlags::ASYM_CPUCAPACITY_FULL,
        }
    }
}

/// What sd_init() takes away beyond node_reclaim_distance.
const BASE_UP_TO_RECLAIM: SdFlags =
    SdFlags::BALANCE_EXEC.or(SdFlags::BALANCE_FORK).or(SdFlags::WAKE_AFFINE);

/// Whether any package shows two CPUs: otherwise the kernel took packages for single-core.
fn has_multicore(facts: &Facts) -> bool {
    facts.cpus.values().any(|cpu| cpu.package_cpus.len() > 1)
}

fn capacities(facts: &Facts) -> Vec<CpuSet> {
    let mut equal: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (&id, cpu) in &facts.cpus {
        if let Some(capacity) = cpu.capacity {
            equal.entry(capacity).or_default().insert(id);
        }
    }
    equal.into_values().collect()
}

/// cpu_attach_domain(): drops parents that add nothing, handing PREFER_SIBLING down, then a bottom
/// domain that does nothing.
fn attach(stack: Vec<Sd>) -> Vec<Sd> {
    let mut kept: Vec<Sd> = vec![];
    for parent in stack {
        match kept.last_mut() {
            Some(child) if is_parent_degenerate(child, &parent) => {
                child.flags = child.flags | (parent.flags & SdFlags::PREFER_SIBLING);
            }
            _ => kept.push(parent),
        }
    }
    if kept.first().is_some_and(is_degenerate) {
        kept.remove(0);
    }
    kept
}

/// sd_degenerate().
fn is_degenerate(sd: &Sd) -> bool {
    let balances = sd.has_groups && !(sd.flags & SdFlags::NEEDS_GROUPS).is_empty();
    sd.span.len() <= 1 || !(balances || sd.flags.has(SdFlags::WAKE_AFFINE))
}

/// sd_parent_degenerate().
fn is_parent_degenerate(child: &Sd, parent: &Sd) -> bool {
    if is_degenerate(parent) {
        return true;
    }
    let needed =
        if parent.has_groups { parent.flags } else { parent.flags.without(SdFlags::NEEDS_GROUPS) };
    child.span == parent.span && needed.without(child.flags).is_empty()
}

/// Of domains that share a level of ours the widest stands for all: spans nest, so it is the last.
fn fold(stack: Vec<Sd>) -> Vec<Domain> {
    let mut domains: Vec<Domain> = vec![];
    for sd in stack {
        let level = sd.row.level();
        domains.pop_if(|below| below.level == level);
        domains.push(Domain {
            level,
            name: sd.row.name().to_string(),
            span: sd.span,
            flags: sd.flags.names(),
        });
    }
    domains
}

/// What a user should know about this machine.
fn notes(facts: &Facts, numa: &NumaTable) -> Vec<String> {
    let mut notes = vec![];
    let distances = numa.remote_distances();
    if let Some(farther) = distances.get(NR_NUMA_LEVELS..).filter(|farther| !farther.is_empty()) {
        let listed: Vec<String> = farther.iter().map(u32::to_string).collect();
        notes.push(format!(
            "{} NUMA distances: those farther than {} ({}) share level NUMA{NR_NUMA_LEVELS}",
            distances.len(),
            distances[NR_NUMA_LEVELS - 1],
            listed.join(", "),
        ));
    }
    notes.extend(asymmetric_pairs(facts));
    notes
}

/// The kernel accepts such a table with an error message, and builds groups that do not cover
/// their domain.
fn asymmetric_pairs(facts: &Facts) -> Option<String> {
    let ids: Vec<usize> = facts.cpu_nodes().map(|(id, _)| id).collect();
    let pairs: BTreeSet<String> = ids
        .iter()
        .flat_map(|&from| ids.iter().map(move |&to| (from, to)))
        .filter(|&(from, to)| {
            from < to
                && scheduling_distance(facts, from, to) != scheduling_distance(facts, to, from)
        })
        .map(|(from, to)| format!("{from}-{to}"))
        .collect();
    let listed = pairs.into_iter().collect::<Vec<_>>().join(", ");
    (!listed.is_empty()).then(|| format!("node distances are not symmetric: nodes {listed}"))
}
