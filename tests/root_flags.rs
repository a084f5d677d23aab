//! What each flag does, by placement and counters.

mod common;

use std::time::Duration;

use common::load::Spinners;
use common::scheduler::{Scheduler, scx_retune};
use common::wait_until;
use scx_retune::bpf::intf::*;
use scx_retune::stats::Snapshot;
use scx_retune::topology::{CpuSet, Level};

const SETTLE: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(60);

fn numa_levels() -> impl Iterator<Item = Level> {
    Level::all().filter(|level| level.is_numa())
}

/// A level counter over all NUMA levels, for some CPUs.
fn at_numa(counted: &Snapshot, cpus: std::ops::Range<usize>, counter: level_counter) -> u64 {
    let row = counted.sum_of(&cpus.collect::<CpuSet>());
    numa_levels().map(|level| row.at(level, counter)).sum()
}

// ---- WAKE_AFFINE: a pair that starts on two nodes ----

/// Runs a ring of two that starts on CPUs 0 and 4; returns for each process its samples by node.
fn run_pair() -> Vec<serde_json::Value> {
    let args = ["60", "ctx", "2", "--start", "0,4", "--passes", "3000", "-N", "1", "--json"];
    let output = std::process::Command::new("timeout")
        .arg(args[0])
        .arg(env!("CARGO_BIN_EXE_scx_retune"))
        .args(&args[1..])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let ring: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    ring["placement"].as_array().unwrap().clone()
}

/// The node where a process was sampled most often.
fn home_of(process: &serde_json::Value) -> String {
    let samples = process["node_samples"].as_object().unwrap();
    let most = samples.iter().max_by_key(|(_, count)| count.as_u64().unwrap());
    most.expect("samples").0.clone()
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_pair_on_two_nodes_stays_apart_without_wake_affine_and_comes_together_with_it() {
    let scheduler = Scheduler::start_with("NUMA.NEWIDLE=off,NUMA.WAKE_AFFINE=off");
    let mut placement = Vec::new();
    let counted = scheduler.counted(|| placement = run_pair());
    assert_eq!((home_of(&placement[0]), home_of(&placement[1])), ("0".into(), "1".into()));
    assert_eq!(at_numa(&counted, 0..16, level_counter_LCNT_TTWU_MOVE_AFFINE), 0);
    assert!(at_numa(&counted, 0..16, level_counter_LCNT_AFFINE_FLAG_OFF) > 1000);

    scheduler.set("NUMA.WAKE_AFFINE=on");
    let counted = scheduler.counted(|| placement = run_pair());
    assert_eq!(home_of(&placement[0]), home_of(&placement[1]), "{placement:?}");
    assert!(at_numa(&counted, 0..16, level_counter_LCNT_TTWU_MOVE_AFFINE) > 0);
    assert_eq!(at_numa(&counted, 0..16, level_counter_LCNT_AFFINE_FLAG_OFF), 0);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_scheduler_that_ignores_its_flags_fails_the_pair_test() {
    let scheduler =
        Scheduler::start_faulty("flags-ignored", "NUMA.NEWIDLE=off,NUMA.WAKE_AFFINE=off");
    let counted = scheduler.counted(|| drop(run_pair()));
    assert_eq!(at_numa(&counted, 0..16, level_counter_LCNT_AFFINE_FLAG_OFF), 0);
    assert!(at_numa(&counted, 0..16, level_counter_LCNT_TTWU_MOVE_AFFINE) > 0);
}

// ---- BALANCE_NEWIDLE: a node that is overloaded while the others sleep ----

/// Twelve spinners that begin on node 0 and may then run anywhere.
fn overload_node_0() -> Spinners {
    let spinners = Spinners::on(&vec![vec![0, 1, 2, 3]; 12]);
    assert!(wait_until(LIMIT, || spinners.loops().iter().all(|&loops| loops > 0)));
    (0..12).for_each(|spinner| spinners.release(spinner));
    std::thread::sleep(SETTLE);
    spinners
}

fn on_node(spinners: &Spinners, node: usize) -> usize {
    spinners.nodes().iter().filter(|&&n| n == node).count()
}

#[test]
#[ignore = "runs in the VM: make test"]
fn queued_tasks_stay_without_newidle_and_drain_when_it_is_switched_on() {
    let scheduler = Scheduler::start_with("NUMA.NEWIDLE=off");
    let spinners = overload_node_0();
    let counted = scheduler.counted(|| std::thread::sleep(SETTLE));
    assert_eq!(on_node(&spinners, 0), 12, "{:?}", spinners.cpus());
    assert_eq!(at_numa(&counted, 0..16, level_counter_LCNT_RUN_ELSEWHERE), 0);
    assert_eq!(at_numa(&counted, 0..16, level_counter_LCNT_LB_COUNT), 0);
    assert!(at_numa(&counted, 4..16, level_counter_LCNT_LB_FLAG_OFF) > 0, "others went idle");

    // Every other CPU sleeps: nothing but the flag changes now.
    let counted = scheduler.counted(|| {
        scheduler.set("NUMA.NEWIDLE=on");
        assert!(wait_until(LIMIT, || on_node(&spinners, 0) <= 4), "{:?}", spinners.cpus());
    });
    assert!(at_numa(&counted, 4..16, level_counter_LCNT_LB_GAINED) >= 8);
    assert!(at_numa(&counted, 0..17, level_counter_LCNT_INVITES) > 0);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn without_invitations_sleeping_cpus_are_never_asked() {
    let scheduler = Scheduler::start_faulty("no-invitations", "NUMA.NEWIDLE=off");
    let spinners = overload_node_0();
    let counted = scheduler.counted(|| {
        scheduler.set("NUMA.NEWIDLE=on");
        std::thread::sleep(SETTLE);
    });
    assert_eq!(counted.total().get(cpu_counter_CNT_INVITED), 0);
    assert_eq!(at_numa(&counted, 0..17, level_counter_LCNT_INVITES), 0);
    drop(spinners);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn newidle_of_node_1_changes_what_its_cpus_do_and_nothing_else() {
    let scheduler = Scheduler::start_with("NUMA.NEWIDLE=off");
    let spinners = overload_node_0();
    let counted = scheduler.counted(|| {
        let report = scheduler.set("NUMA@node1.NEWIDLE=on");
        assert_eq!((report.words_changed, report.cpus.as_str()), (4, "4-7"));
        assert!(wait_until(LIMIT, || on_node(&spinners, 1) >= 4), "{:?}", spinners.cpus());
        std::thread::sleep(SETTLE);
    });
    assert_eq!(on_node(&spinners, 0) + on_node(&spinners, 1), 12, "{:?}", spinners.cpus());
    assert!(at_numa(&counted, 4..8, level_counter_LCNT_LB_GAINED) >= 4);
    for others in [0..4, 8..12, 12..16] {
        assert_eq!(at_numa(&counted, others.clone(), level_counter_LCNT_LB_COUNT), 0, "{others:?}");
        assert_eq!(at_numa(&counted, others.clone(), level_counter_LCNT_LB_GAINED), 0);
    }
    // The other nodes' flags are what they were: switched on there too, they pull.
    scheduler.set("NUMA@node2.NEWIDLE=on");
    assert!(wait_until(LIMIT, || on_node(&spinners, 2) > 0), "{:?}", spinners.cpus());
}

// ---- the command line on a live scheduler ----

#[test]
#[ignore = "runs in the VM: make test"]
fn a_wrong_set_names_the_right_ones_exits_with_2_and_changes_nothing() {
    let scheduler = Scheduler::start(&[]);
    let before = scx_retune(&["get", "--plain"]).output().unwrap().stdout;
    for (wrong, hint) in [
        ("NUMA.NEWIDLE=off,NUMB.NEWIDLE=off", "did you mean NUMA"),
        ("NUMA.NEWIDLE=off,NUMA.WAKE_AFINE=off", "did you mean WAKE_AFFINE"),
        ("NUMA.NEWIDLE=off,NUMA@node7.NEWIDLE=off", "0-3"),
        ("NUMA.NEWIDLE=off,NUMA.WAKE_AFFINE=maybe", "on"),
    ] {
        let output = scx_retune(&["set", wrong]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {message}");
        assert!(message.contains(hint), "{wrong}: {message}");
    }
    assert_eq!(scx_retune(&["get", "--plain"]).output().unwrap().stdout, before);
    assert_eq!(scheduler.stats().generation, 0);

    let output = scx_retune(&["set", "NUMA.NEWIDLE=off"]).output().unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.starts_with("generation 1: 16 words changed at "), "{answer}");
    assert_ne!(scx_retune(&["get", "--plain"]).output().unwrap().stdout, before);
}
