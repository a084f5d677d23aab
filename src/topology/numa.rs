//! The NUMA levels of a machine: its distances, and what each node sees within each.
//!
//! kernel/sched/topology.c sched_init_numa(): the distances between nodes with CPUs, without
//! repeats and ascending; a node's mask at a distance is every node at most that far from it.

use std::collections::{BTreeMap, BTreeSet};

use super::CpuSet;
use super::facts::Facts;

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
        let pairs = ids.iter().flat_map(|&from| ids.iter().map(move |&to| (from, to)));
        let distances: BTreeSet<u32> = pairs.map(|(from, to)| facts.distance(from, to)).collect();
        let distances: Vec<u32> = distances.into_iter().collect();
        let within =
            |limit: u32| ids.iter().map(|&from| (from, cpus_within(facts, from, limit))).collect();
        NumaTable { masks: distances.iter().map(|&limit| within(limit)).collect(), distances }
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

fn cpus_within(facts: &Facts, from: usize, limit: u32) -> CpuSet {
    facts
        .cpu_nodes()
        .filter(|&(to, _)| facts.distance(from, to) <= limit)
        .fold(CpuSet::new(), |seen, (_, node)| seen.union(&node.cpus))
}
