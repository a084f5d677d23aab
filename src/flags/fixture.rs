//! A machine for the tests: four nodes of four CPUs in a line, CPUs 16-19 possible but absent.
//!
//! Distances are 20, 30 and 40. The middle nodes reach the whole line at NUMA2 and have no NUMA3.

use crate::topology::{Cpu, CpuSet, Domain, Level, Machine};

const NEAR: &[&str] =
    &["SD_BALANCE_NEWIDLE", "SD_BALANCE_EXEC", "SD_BALANCE_FORK", "SD_WAKE_AFFINE"];
const FAR: &[&str] = &["SD_BALANCE_NEWIDLE", "SD_NUMA"];

pub fn line() -> Machine {
    Machine {
        cpus: (0..16).map(|id| (id, cpu(id))).collect(),
        nr_cpu_ids: 20,
        llcs: (0..4).map(|node| nodes(node, node)).collect(),
        isolated: CpuSet::new(),
        numa_distances: vec![20, 30, 40],
        notes: Vec::new(),
    }
}

fn cpu(id: usize) -> Cpu {
    let node = id / 4;
    let mut domains = vec![domain(Level::MC, "MC", nodes(node, node))];
    for hops in 1..=node.max(3 - node) {
        let span = nodes(node.saturating_sub(hops), (node + hops).min(3));
        domains.push(domain(Level::numa(hops).unwrap(), "NUMA", span));
    }
    Cpu { id, node, domains }
}

fn domain(level: Level, name: &str, span: CpuSet) -> Domain {
    let is_far = Level::numa(3) == Some(level);
    let flags = if is_far { FAR } else { NEAR };
    Domain { level, name: name.to_owned(), span, flags: flags.to_vec() }
}

fn nodes(first: usize, last: usize) -> CpuSet {
    (first * 4..last * 4 + 4).collect()
}
