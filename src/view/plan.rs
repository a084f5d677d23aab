//! `run --dry-run`: what would be loaded.

use crate::flags::Matrix;
use crate::sched::plan::Plan;
use crate::topology::Machine;

/// The tables in words: sizes, node order and the flags to begin with.
pub fn describe(machine: &Machine, plan: &Plan, matrix: &Matrix) -> String {
    let mut text = format!(
        "{} CPUs (numbers below {}), {} nodes, {} last-level caches, {} run queues in {} hint groups, SMT {}\n",
        machine.cpus.len(),
        machine.nr_cpu_ids,
        plan.nodes.len(),
        plan.llcs.len(),
        plan.queues.len(),
        plan.groups.len(),
        if plan.smt { "on" } else { "off" },
    );
    for (index, node) in plan.nodes.iter().enumerate() {
        text += &describe_node(plan, index, node.id);
    }
    for note in &machine.notes {
        text += &format!("note: {note}\n");
    }
    text + &format!("{}\n", matrix.view(machine))
}

fn describe_node(plan: &Plan, index: usize, id: u16) -> String {
    let row = index * plan.nodes.len();
    let others = &plan.node_order[row..row + plan.nodes.len() - 1];
    let nearest: Vec<String> =
        others.iter().map(|&other| plan.nodes[other as usize].id.to_string()).collect();
    let nearest = if nearest.is_empty() { "none".to_owned() } else { nearest.join(" ") };
    format!(
        "node {id}: {} CPUs; other nodes, nearest first: {nearest}\n",
        plan.nodes[index].nr_cpus
    )
}
