//! Large machines: a thousand CPUs, and more NUMA distances than there are levels. What is
//! expected is plain arithmetic on CPU numbers, not the rules under test.

#[path = "trees/synthetic.rs"]
mod synthetic;

use std::time::{Duration, Instant};

use scx_retune::topology::{CpuSet, kernel};
use synthetic::{Synthetic, SyntheticCpu, model, put, stack, tree};

/// Nodes in a line: `step` more for each hop, after `first` for the nearest.
fn line(nr_nodes: usize, first: u32, step: u32) -> Vec<(usize, Vec<u32>)> {
    let distance = |hops: usize| {
        if hops == 0 { 10 } else { first + step * (hops as u32 - 1) }
    };
    (0..nr_nodes)
        .map(|from| (from, (0..nr_nodes).map(|to| distance(from.abs_diff(to))).collect()))
        .collect()
}

// 1,024 online CPUs out of 1,028: thread t of core c is CPU c + 514 t, four CPUs are offline; 33
// cores a cache, two caches a node, one node a package, node ids with a hole.
const NR_CORES: usize = 514;
const OFFLINE: [usize; 4] = [5, 300, 519, 1027];
const NODES: [usize; 8] = [0, 1, 2, 3, 8, 9, 10, 11];

fn cache_of(cpu: usize) -> usize {
    cpu % NR_CORES / 33
}

fn online_where(accept: impl Fn(usize) -> bool) -> CpuSet {
    (0..2 * NR_CORES).filter(|cpu| !OFFLINE.contains(cpu) && accept(*cpu)).collect()
}

/// Nearer than this many nodes in a row (aligned) means this distance.
const DISTANCES: [(usize, u32); 4] = [(1, 10), (2, 16), (4, 22), (8, 32)];

fn thousand() -> Synthetic {
    let distance = |from: usize, to: usize| {
        DISTANCES.iter().find(|(run, _)| from / run == to / run).unwrap().1
    };
    let row = |from: usize| (0..NODES.len()).map(|to| distance(from, to)).collect();
    let cpu = |id: usize| SyntheticCpu {
        id,
        threads: online_where(|other| other % NR_CORES == id % NR_CORES),
        cache: online_where(|other| cache_of(other) == cache_of(id)),
        package_cpus: online_where(|other| cache_of(other) / 2 == cache_of(id) / 2),
        package: cache_of(id) / 2,
        node: NODES[cache_of(id) / 2],
    };
    Synthetic {
        cpus: online_where(|_| true).iter().map(cpu).collect(),
        nodes: NODES.iter().enumerate().map(|(position, &id)| (id, row(position))).collect(),
        nr_cpu_ids: 2 * NR_CORES,
        isolated: String::new(),
        processor: ("GenuineIntel", 6, 85),
    }
}

/// The stack of a CPU by plain arithmetic on its number.
fn thousand_stack(cpu: usize) -> Vec<String> {
    let caches = |run: usize| online_where(|other| cache_of(other) / run == cache_of(cpu) / run);
    let threads = online_where(|other| other % NR_CORES == cpu % NR_CORES);
    let levels = [
        ("MC", caches(1)),
        ("PKG", caches(2)),
        ("NUMA1", caches(4)),
        ("NUMA2", caches(8)),
        ("NUMA3", caches(16)),
    ];
    let smt = (threads.len() > 1).then_some(("SMT", threads));
    smt.into_iter().chain(levels).map(|(level, span)| format!("{level} {span}")).collect()
}

#[test]
fn a_thousand_cpus_are_right_and_read_fast() {
    let dir = tree(&thousand());
    let machine = model(dir.path());
    assert_eq!(machine.cpus.len(), 1024);
    for &cpu in machine.cpus.keys() {
        assert_eq!(stack(&machine, cpu), thousand_stack(cpu), "CPU {cpu}");
    }
    assert_eq!((machine.nr_cpu_ids, machine.llcs.len()), (1028, 16));
    assert_eq!(machine.nodes(), NODES);
    assert_eq!(machine.numa_distances, [16, 22, 32]);
    let top = machine.cpus[&0].domains.last().unwrap();
    assert_eq!(
        top.flags,
        ["SD_BALANCE_NEWIDLE", "SD_SERIALIZE", "SD_NUMA"],
        "32 is beyond reclaim distance"
    );
    println!(
        "benchmark: 1,024 CPUs read and modelled in {:?} (best of 5)",
        best_of_5(|| model(dir.path()))
    );
}

fn best_of_5<T>(work: impl Fn() -> T) -> Duration {
    let timed = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..5).map(timed).min().unwrap_or_default()
}

#[test]
fn distances_beyond_the_sixth_share_the_last_level() {
    let dir = tree(&Synthetic::nodes_of(2, line(9, 12, 2)));
    let machine = model(dir.path());
    assert_eq!(
        stack(&machine, 0),
        ["MC 0-1", "NUMA1 0-3", "NUMA2 0-5", "NUMA3 0-7", "NUMA4 0-9", "NUMA5 0-11", "NUMA6 0-17"]
    );
    assert_eq!(
        stack(&machine, 8),
        ["MC 8-9", "NUMA1 6-11", "NUMA2 4-13", "NUMA3 2-15", "NUMA4 0-17"]
    );
    assert_eq!(machine.numa_distances, [12, 14, 16, 18, 20, 22, 24, 26]);
    assert!(
        machine.notes.iter().any(|note| note.contains("24, 26") && note.contains("NUMA6")),
        "{:?}",
        machine.notes
    );
}

#[test]
fn the_comparison_folds_the_kernels_far_domains_too() {
    let dir = tree(&Synthetic::nodes_of(2, line(9, 12, 2)));
    let mut schedstat = "version 17\ntimestamp 1\n".to_string();
    for cpu in 0..18 {
        let node = cpu / 2;
        schedstat += &format!("cpu{cpu} 0 0\ndomain0 MC {:x} 0\n", mask(node, node));
        let mut reach = 1;
        while mask(node.saturating_sub(reach - 1), (node + reach - 1).min(8)) != mask(0, 8) {
            let span = mask(node.saturating_sub(reach), (node + reach).min(8));
            schedstat += &format!("domain{reach} NUMA {span:x} 0\n");
            reach += 1;
        }
    }
    put(&dir.path().join("proc/schedstat"), schedstat.trim_end());
    let kernel = kernel::read(dir.path()).expect("the kernel's domains");
    assert_eq!(kernel.cpus[&0].len(), 9, "the kernel has all eight distances");
    assert_eq!(kernel::compare(&model(dir.path()), &kernel), [""; 0]);
}

/// The CPUs of nodes `first..=last`, two each.
fn mask(first: usize, last: usize) -> u32 {
    (first * 2..(last + 1) * 2).fold(0, |bits, cpu| bits | 1 << cpu)
}
