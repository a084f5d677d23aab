//! What is loaded for a machine, computed from its domains by a pure function.
//!
//! The tables are those of `src/bpf/intf.h`. Queues are numbered by node, last-level
//! cache and group of at most 64, so that a group's overload hints are one word and a
//! node's groups are another.

use std::collections::BTreeMap;

use crate::bpf::intf::{cpu_place, group_place, llc_place, node_place, queue_place};
use crate::error::Error;
use crate::topology::{Cpu, CpuSet, Level, Machine, NR_LOCAL_LEVELS};

/// Queues of a group and groups of a node: bits of one word.
const WORD_BITS: usize = 64;
/// No level (`LEVEL_NONE` of intf.h).
pub const NO_LEVEL: u8 = 255;
/// An index that no table has: offline CPUs have no cache and no queue.
const NOWHERE: u16 = u16::MAX;

/// The read-only tables, each in the order of its index.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cpus: Vec<cpu_place>,
    pub llcs: Vec<llc_place>,
    pub queues: Vec<queue_place>,
    /// The CPUs of all queues, queue after queue.
    pub queue_cpus: Vec<u16>,
    pub groups: Vec<group_place>,
    pub nodes: Vec<node_place>,
    /// `[from * nodes + to]`: level index, or `NO_LEVEL`.
    pub node_levels: Vec<u8>,
    /// `[from * nodes + i]`: the other nodes, nearest first; the last entry of a row is unused.
    pub node_order: Vec<u16>,
    /// Some core has more than one thread.
    pub smt: bool,
    /// Most CPUs of a queue; never more than share a last-level cache.
    width: usize,
}

/// How many CPUs share a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueCpus {
    /// At most so many, all of one last-level cache.
    UpTo(usize),
    /// All CPUs of a last-level cache.
    Llc,
}

impl Default for QueueCpus {
    /// The kernel's shape.
    fn default() -> Self {
        QueueCpus::UpTo(1)
    }
}

impl std::str::FromStr for QueueCpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<usize>()) {
            ("llc", _) => Ok(QueueCpus::Llc),
            (_, Ok(cpus)) if (1..=WORD_BITS * WORD_BITS).contains(&cpus) => {
                Ok(QueueCpus::UpTo(cpus))
            }
            _ => Err(format!("'{text}' is neither a number of CPUs (1 and up) nor llc")),
        }
    }
}

impl Plan {
    /// Lays out the tables of a machine.
    ///
    /// Errors: more CPUs than 16-bit numbers, or a node with more than 64 groups
    /// (4,096 CPUs): such machines are not known.
    pub fn new(machine: &Machine, queue_cpus: QueueCpus) -> Result<Plan, Error> {
        if machine.nr_cpu_ids >= NOWHERE as usize {
            return Err(too_large("CPUs", machine.nr_cpu_ids, NOWHERE as usize - 1));
        }
        let mut plan = Plan::empty(machine, queue_cpus);
        for node in machine.nodes() {
            plan.add_node(machine, node)?;
        }
        plan.relate_nodes(machine);
        Ok(plan)
    }

    /// Queues in all: where they are wider than a CPU, each CPU has one of its own besides.
    pub fn nr_all_queues(&self) -> usize {
        if self.width == 1 { self.queues.len() } else { self.queues.len() + self.cpus.len() }
    }

    fn empty(machine: &Machine, queue_cpus: QueueCpus) -> Plan {
        Plan {
            cpus: (0..machine.nr_cpu_ids).map(|cpu| offline_place(cpu as u16)).collect(),
            llcs: Vec::new(),
            queues: Vec::new(),
            queue_cpus: Vec::new(),
            groups: Vec::new(),
            nodes: Vec::new(),
            node_levels: Vec::new(),
            node_order: Vec::new(),
            smt: machine.cpus.values().any(|cpu| cpu.domain(Level::SMT).is_some()),
            width: match queue_cpus {
                QueueCpus::UpTo(cpus) => cpus,
                QueueCpus::Llc => usize::MAX,
            },
        }
    }

    fn add_node(&mut self, machine: &Machine, id: usize) -> Result<(), Error> {
        let first_group = self.groups.len();
        let cpus = machine.node_cpus(id);
        for llc in llcs_of(machine, &cpus) {
            self.add_llc(machine, &llc, first_group);
        }
        let nr_groups = self.groups.len() - first_group;
        if nr_groups > WORD_BITS {
            return Err(too_large("groups of queues in a node", nr_groups, WORD_BITS));
        }
        self.nodes.push(node_place {
            id: id as u16,
            first_group: first_group as u16,
            nr_groups: nr_groups as u16,
            nr_cpus: cpus.len() as u16,
        });
        Ok(())
    }

    fn add_llc(&mut self, machine: &Machine, span: &CpuSet, first_group_of_node: usize) {
        let first_group = self.groups.len();
        let cpus = nearest_together(machine, span);
        let queues: Vec<&[usize]> = cpus.chunks(self.width.min(cpus.len())).collect();
        for group in queues.chunks(WORD_BITS) {
            self.add_group(machine, group, first_group_of_node);
        }
        self.llcs.push(llc_place {
            node: self.nodes.len() as u16,
            nr_cpus: cpus.len() as u16,
            first_group: first_group as u16,
            nr_groups: (self.groups.len() - first_group) as u16,
        });
    }

    fn add_group(&mut self, machine: &Machine, queues: &[&[usize]], first_group_of_node: usize) {
        let group = self.groups.len();
        self.groups.push(group_place {
            first_queue: self.queues.len() as u16,
            node: self.nodes.len() as u16,
            llc: self.llcs.len() as u16,
            bit: (group - first_group_of_node) as u16,
        });
        for (bit, cpus) in queues.iter().enumerate() {
            cpus.iter().for_each(|cpu| self.add_cpu(&machine.cpus[cpu]));
            self.add_queue(cpus, group, bit);
        }
    }

    fn add_cpu(&mut self, cpu: &Cpu) {
        self.cpus[cpu.id] = cpu_place {
            dom: local_domains(cpu),
            node: self.nodes.len() as u16,
            llc: self.llcs.len() as u16,
            queue: self.queues.len() as u16,
            levels: cpu.domains.iter().fold(0, |bits, domain| bits | 1 << domain.level.index()),
        };
    }

    fn add_queue(&mut self, cpus: &[usize], group: usize, bit: usize) {
        self.queues.push(queue_place {
            cpu: cpus[0] as u16,
            llc: self.llcs.len() as u16,
            group: group as u16,
            bit: bit as u16,
            first_member: self.queue_cpus.len() as u16,
            nr_cpus: cpus.len() as u16,
        });
        self.queue_cpus.extend(cpus.iter().map(|&cpu| cpu as u16));
    }

    fn relate_nodes(&mut self, machine: &Machine) {
        let nodes = machine.nodes();
        for &from in &nodes {
            let levels: Vec<u8> = nodes.iter().map(|&to| node_level(machine, from, to)).collect();
            self.node_order.extend(nearest_first(&levels, nodes.iter().position(|&n| n == from)));
            self.node_levels.extend(levels);
        }
    }
}

fn too_large(what: &str, found: usize, limit: usize) -> Error {
    Error::environment(format!(
        "cannot lay out this machine: it has {found} {what}, this build has room for {limit}; \
         please report the machine's `scx_retune topo`"
    ))
}

fn offline_place(cpu: u16) -> cpu_place {
    cpu_place { dom: [cpu; NR_LOCAL_LEVELS], node: 0, llc: NOWHERE, queue: NOWHERE, levels: 0 }
}

/// The distinct last-level caches among `cpus`, by first CPU.
fn llcs_of(machine: &Machine, cpus: &CpuSet) -> Vec<CpuSet> {
    let spans: BTreeMap<usize, CpuSet> = cpus
        .iter()
        .map(|cpu| machine.cpus[&cpu].llc_span())
        .filter_map(|span| Some((span.first()?, span)))
        .collect();
    spans.into_values().collect()
}

/// A cache's CPUs so that those of a core, then of a cluster, stand side by side: a queue
/// wider than a CPU then splits neither if it can.
fn nearest_together(machine: &Machine, span: &CpuSet) -> Vec<usize> {
    let mut cpus: Vec<usize> = span.iter().collect();
    cpus.sort_by_key(|cpu| {
        let [smt, cls, ..] = local_domains(&machine.cpus[cpu]);
        (cls, smt, *cpu)
    });
    cpus
}

/// A domain below NUMA is known by its first CPU, because domains of one level do not
/// overlap there; a CPU without the level is known by itself.
fn local_domains(cpu: &Cpu) -> [u16; NR_LOCAL_LEVELS] {
    std::array::from_fn(|index| {
        Level::from_index(index)
            .and_then(|level| cpu.domain(level))
            .and_then(|domain| domain.span.first())
            .unwrap_or(cpu.id) as u16
    })
}

/// The lowest NUMA level at which the CPUs of `from` see those of `to`.
fn node_level(machine: &Machine, from: usize, to: usize) -> u8 {
    let targets = machine.node_cpus(to);
    let sees = |cpu: &Cpu| {
        cpu.domains
            .iter()
            .filter(|domain| domain.level.is_numa())
            .find(|domain| domain.span.iter().any(|cpu| targets.contains(cpu)))
            .map(|domain| domain.level.index() as u8)
    };
    machine
        .cpus
        .values()
        .filter(|cpu| cpu.node == from && from != to)
        .filter_map(sees)
        .min()
        .unwrap_or(NO_LEVEL)
}

/// Indices of a row's other nodes, nearest level first, then by number.
fn nearest_first(levels: &[u8], own: Option<usize>) -> Vec<u16> {
    let mut others: Vec<usize> = (0..levels.len()).filter(|&to| Some(to) != own).collect();
    others.sort_by_key(|&to| (levels[to], to));
    others.push(own.unwrap_or(0));
    others.into_iter().map(|to| to as u16).collect()
}
