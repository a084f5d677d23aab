//! The distances that the scheduler uses: the node distances, but for one family of machines.
//!
//! Granite Rapids and Clearwater Forest with three nodes in a package report distances between
//! packages that differ by direction. The kernel (arch/x86/kernel/smpboot.c
//! arch_sched_node_distance(), since 7.0) puts the mean between two packages in their place.
//! Kernels 6.18 and 6.19 average over all packages at once; that is not modelled.

use super::facts::Facts;

/// INTEL_GRANITERAPIDS_X and INTEL_ATOM_DARKMONT_X (arch/x86/include/asm/intel-family.h).
const MODELS: [u32; 2] = [0xad, 0xdd];

/// arch_sched_node_distance().
pub fn scheduling_distance(facts: &Facts, from: usize, to: usize) -> u32 {
    match nodes_to_average(facts) {
        Some(per_package) if from / per_package != to / per_package => {
            mean(facts, per_package, from, to)
        }
        _ => facts.distance(from, to),
    }
}

/// How many nodes a package has, on a machine whose distances are to be averaged.
fn nodes_to_average(facts: &Facts) -> Option<usize> {
    if !is_affected(facts) || facts.nr_packages() == 1 {
        return None;
    }
    let per_package = facts.nodes_per_package();
    (per_package >= 3 && is_as_expected(facts, per_package)).then_some(per_package)
}

fn is_affected(facts: &Facts) -> bool {
    let processor = &facts.processor;
    processor.vendor == "GenuineIntel" && processor.family == 6 && MODELS.contains(&processor.model)
}

/// slit_validate(): nodes of a package are numbered in a row, their distances symmetric, and no
/// two neighbours in that order are the same package. Otherwise nothing is averaged.
fn is_as_expected(facts: &Facts, per_package: usize) -> bool {
    let firsts = (0..facts.nr_packages()).map(|package| package * per_package);
    let packages: Vec<Option<i64>> =
        firsts.clone().map(|first| package_of(facts, first, per_package)).collect();
    firsts.into_iter().all(|first| is_symmetric(facts, first, per_package))
        && packages.iter().all(Option::is_some)
        && packages.windows(2).all(|pair| pair[0] != pair[1])
}

/// slit_cluster_symmetric().
fn is_symmetric(facts: &Facts, first: usize, per_package: usize) -> bool {
    let nodes = first..first + per_package;
    nodes.clone().all(|a| nodes.clone().all(|b| facts.distance(a, b) == facts.distance(b, a)))
}

/// slit_cluster_package(): the one package of all CPUs of these nodes.
fn package_of(facts: &Facts, first: usize, per_package: usize) -> Option<i64> {
    let mut packages = facts
        .cpus
        .values()
        .filter(|cpu| (first..first + per_package).contains(&cpu.node))
        .map(|cpu| cpu.package);
    let package = packages.next()??;
    packages.all(|other| other == Some(package)).then_some(package)
}

/// slit_cluster_distance(): over both directions, so that the result is symmetric.
fn mean(facts: &Facts, per_package: usize, from: usize, to: usize) -> u32 {
    let nodes_beside = |node: usize| {
        let first = node - node % per_package;
        first..first + per_package
    };
    let pairs = nodes_beside(from).flat_map(|a| nodes_beside(to).map(move |b| (a, b)));
    let sum: u32 = pairs.map(|(a, b)| facts.distance(a, b) + facts.distance(b, a)).sum();
    sum / (2 * per_package * per_package) as u32
}
