//! The NUMA levels of a machine: its distances, and what each node sees within each.
//!
//! kernel/sched/topology.c sched_init_numa(): the distances between nodes with CPUs, without
//! repeats and ascending; a node's mask at a distance is every node at most that far from it.

use std::collections::{BTreeMap, BTreeSet};

use super::CpuSet;
use super::facts::Facts;
use super::snc::scheduling_distance;

/// sched_domains_numa_distance and sched_domains_numa_masks.
#[derive(Clone, Debug)]
pub struct NumaTable {
    /// Position 0 is the local distance.
    distances: Vec<u32>,
    /// By position, then node.
    masks: Vec<BTreeMap<usize, CpuSet>>,
}

impl NumaTable {
    pub fn new(facts: &Facts) -> Self {
        let ids: Vec<usize> = facts.cpu_nodes().map(|(id, _)| id).collect();
        let rows: BTreeMap<usize, Vec<(usize, u32)>> =
            ids.iter().map(|&from| (from, row(facts, &ids, from))).collect();
        let distances: BTreeSet<u32> =
            rows.values().flatten().map(|&(_, distance)| distance).collect();
        let within = |limit: u32| {
            let masks = rows.iter().map(|(&from, row)| (from, cpus_within(facts, row, limit)));
            masks.collect()
        };
        NumaTable {
            masks: distances.iter().map(|&limit| within(limit)).collect(),
            distances: distances.into_iter().collect(),
        }
    }

    /// The distance at a position.
    pub fn distance(&self, position: usize) -> u32 {
        self.distances[position]
    }

    /// Distances beyond the local one, nearest first: NUMA1, NUMA2, ...
    pub fn remote_distances(&self) -> &[u32] {
        self.distances.get(1..).unwrap_or_default()
    }

    /// The position of a span that a node was seen to have, `top` being all CPUs that take part:
    /// the nearest distance above `below` with that mask, else simply the next one.
    pub fn position_of(&self, node: usize, span: &CpuSet, top: &CpuSet, below: usize) -> usize {
        (below + 1..self.distances.len())
            .find(|&position| self.mask(position, node).intersection(top) == *span)
            .unwrap_or(below + 1)
    }

    /// The online CPUs that a node sees within the distance at a position (sd_numa_mask()).
    pub fn mask(&self, position: usize, node: usize) -> CpuSet {
        self.masks.get(position).and_then(|masks| masks.get(&node)).cloned().unwrap_or_default()
    }
}

/// The distance from a node to each node with CPUs, as the scheduler sees it.
fn row(facts: &Facts, ids: &[usize], from: usize) -> Vec<(usize, u32)> {
    ids.iter().map(|&to| (to, scheduling_distance(facts, from, to))).collect()
}

fn cpus_within(facts: &Facts, row: &[(usize, u32)], limit: u32) -> CpuSet {
    row.iter()
        .filter(|&&(_, distance)| distance <= limit)
        .fold(CpuSet::new(), |seen, (to, _)| seen.union(&facts.nodes[to].cpus))
}
