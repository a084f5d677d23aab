//! Each rule of the policy, with its negative control: the same test on a scheduler that
//! breaks the rule on purpose (`run --fault`) must come out the other way.

mod common;

use std::sync::mpsc::channel;
use std::time::Duration;

use common::load::{Spinners, node_of, pin_to};
use common::scheduler::Scheduler;
use common::storm::{Canaries, Storm, change_affinity, fork_and_exec, hackbench};
use common::{Random, wait_until};
use nix::sched::sched_getcpu;
use scx_retune::bpf::intf::*;
use scx_retune::stats::Snapshot;

const LIMIT: Duration = Duration::from_secs(60);
const EVERYWHERE: std::ops::Range<usize> = 0..16;

/// A level counter over all levels and CPUs.
fn at_all_levels(counted: &Snapshot, counter: level_counter) -> u64 {
    counted.total().level[counter as usize].iter().sum()
}

/// What a scheduler counts while hackbench runs a few times.
fn hackbench_under(args: &[&str]) -> Snapshot {
    let scheduler = Scheduler::start(args);
    scheduler.counted(|| (0..3).for_each(|seed| hackbench(&mut Random(seed))))
}

/// Spinners that are all under way.
fn spinning(homes: &[Vec<usize>]) -> Spinners {
    let spinners = Spinners::on(homes);
    assert!(wait_until(LIMIT, || spinners.loops().iter().all(|&loops| loops > 0)));
    spinners
}

/// The CPU time (ms) that each spinner gets in `time`.
fn run_ms(spinners: &Spinners, time: Duration) -> Vec<u64> {
    let before = spinners.run_ns();
    std::thread::sleep(time);
    let after = spinners.run_ns();
    after.iter().zip(&before).map(|(now, then)| (now - then) / 1_000_000).collect()
}

// ---- wakeups ----

#[test]
#[ignore = "runs in the VM: make test"]
fn wide_wakes_stay_on_the_previous_side() {
    let wide =
        |args: &[&str]| at_all_levels(&hackbench_under(args), level_counter_LCNT_AFFINE_WIDE);
    assert!(wide(&[]) > 0);
    assert_eq!(wide(&["--fault", "never-wide"]), 0);
}

/// The node on which a task ends up that slept on CPU 4, where a hog runs now, and that a
/// mostly idle task on CPU 0 wakes without promising to sleep.
fn node_after_wakeup() -> usize {
    let hog = spinning(&[vec![4]]);
    let (wake, woken) = channel::<()>();
    let (tell, told) = channel::<usize>();
    let wakee = std::thread::spawn(move || {
        pin_to([4]);
        pin_to(EVERYWHERE);
        while woken.recv().is_ok() {
            let _ = tell.send(sched_getcpu().unwrap());
        }
    });
    let waker = std::thread::spawn(move || {
        pin_to([0]);
        let cpus: Vec<usize> = (0..5)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(300));
                wake.send(()).unwrap();
                told.recv().unwrap()
            })
            .collect();
        cpus
    });
    let cpus = waker.join().unwrap();
    wakee.join().unwrap();
    drop(hog);
    node_of(cpus[0])
}

fn nodes_after_wakeups(args: &[&str]) -> Vec<usize> {
    let _scheduler = Scheduler::start(args);
    (0..5).map(|_| node_after_wakeup()).collect()
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_wakee_whose_cpu_is_busy_goes_to_the_side_of_a_waker_with_less_load() {
    let with_rule = nodes_after_wakeups(&[]);
    let without = nodes_after_wakeups(&["--fault", "no-weight-rule"]);
    println!("nodes with the rule {with_rule:?}, without {without:?}");
    let at_waker = |nodes: &[usize]| nodes.iter().filter(|&&node| node == 0).count();
    assert!(at_waker(&with_rule) >= 4, "{with_rule:?}");
    assert!(at_waker(&without) <= 1, "{without:?}");
}

/// How many CPUs eight new spinners are on, two seconds after one parent started them.
fn cpus_of_children(flags: &str) -> (usize, u64) {
    let scheduler = Scheduler::start_with(flags);
    let mut cpus = 0;
    let counted = scheduler.counted(|| {
        let children = spinning(&vec![EVERYWHERE.collect(); 8]);
        std::thread::sleep(Duration::from_secs(2));
        let mut used = children.cpus();
        used.sort_unstable();
        used.dedup();
        cpus = used.len();
    });
    (cpus, at_all_levels(&counted, level_counter_LCNT_SBF_PUSHED))
}

#[test]
#[ignore = "runs in the VM: make test"]
fn balance_fork_spreads_children_and_without_it_they_stay_with_their_parent() {
    let only_fork = "*.WAKE_AFFINE=off,*.NEWIDLE=off,*.BALANCE_WAKE=off";
    let (cpus, pushed) = cpus_of_children(only_fork);
    assert!(cpus >= 6 && pushed >= 6, "{cpus} CPUs, {pushed} pushed");
    let (cpus, pushed) = cpus_of_children("none");
    assert!(cpus <= 2, "{cpus} CPUs");
    assert_eq!(pushed, 0);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn balance_wake_spreads_wakeups_that_wake_affine_leaves_alone() {
    let pushed =
        |flags| at_all_levels(&hackbench_under(&["--set", flags]), level_counter_LCNT_SBW_PUSHED);
    assert!(pushed("*.WAKE_AFFINE=off,*.BALANCE_WAKE=on") > 0);
    assert_eq!(pushed("*.WAKE_AFFINE=off,*.BALANCE_WAKE=off"), 0);
}

// ---- order on one CPU ----

#[test]
#[ignore = "runs in the VM: make test"]
fn a_sleeper_that_wakes_preempts_a_hog() {
    let preempted = |args: &[&str]| {
        let scheduler = Scheduler::start(args);
        let hog = spinning(&[vec![3]]);
        let counted = scheduler.counted(|| {
            let canaries = Canaries::on(&[vec![3]]);
            std::thread::sleep(Duration::from_secs(3));
            canaries.end();
        });
        drop(hog);
        counted.rows[3].get(cpu_counter_CNT_ENQ_PREEMPT)
    };
    assert!(preempted(&[]) > 0);
    assert_eq!(preempted(&["--fault", "no-preemption"]), 0);
}

/// The share (%) of CPU 3 that a spinner of nice 5 gets beside one of nice 0.
fn share_of_nice_5(args: &[&str]) -> f64 {
    let _scheduler = Scheduler::start(args);
    let spinners = spinning(&[vec![3], vec![3]]);
    spinners.renice(1, 5);
    std::thread::sleep(Duration::from_secs(1));
    let ran = run_ms(&spinners, Duration::from_secs(15));
    println!("nice 0 and 5 ran {ran:?} ms");
    ran[1] as f64 / (ran[0] + ran[1]) as f64 * 100.0
}

#[test]
#[ignore = "runs in the VM: make test"]
fn nice_weights_divide_a_cpu() {
    // sched_prio_to_weight: 1024 at nice 0, 335 at nice 5; sched_ext rounds to 100 and 33.
    let expected = 33.0 / 133.0 * 100.0;
    let share = share_of_nice_5(&[]);
    assert!((share - expected).abs() < 5.0, "{share:.1}% instead of {expected:.1}%");
    let unordered = share_of_nice_5(&["--fault", "no-order"]);
    assert!((unordered - 50.0).abs() < 10.0, "{unordered:.1}% without order");
}

/// The share (%) of CPU 3 that a hog keeps just after a task that slept for 6 s joins it.
fn share_beside_a_sleeper(args: &[&str]) -> f64 {
    let _scheduler = Scheduler::start(args);
    let spinners = spinning(&[vec![3], vec![3]]);
    spinners.pause(1, Duration::from_secs(6));
    let before = spinners.run_ns()[1];
    assert!(wait_until(LIMIT, || spinners.is_paused(1)));
    assert!(wait_until(LIMIT, || spinners.run_ns()[1] > before + 100_000_000));
    let ran = run_ms(&spinners, Duration::from_secs(2));
    println!("the hog and the sleeper ran {ran:?} ms");
    ran[0] as f64 / (ran[0] + ran[1]) as f64 * 100.0
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_sleeper_keeps_at_most_a_slice_of_credit() {
    let share = share_beside_a_sleeper(&[]);
    assert!(share > 35.0, "the hog keeps {share:.1}%");
    let unbounded = share_beside_a_sleeper(&["--fault", "no-sleeper-bound"]);
    assert!(unbounded < 10.0, "the hog keeps {unbounded:.1}% beside an unbounded sleeper");
}

// ---- new idle ----

#[test]
#[ignore = "runs in the VM: make test"]
fn the_gates_refuse_by_cost_and_dice_and_say_so() {
    let refused = |args: &[&str]| {
        let counted = hackbench_under(args);
        [level_counter_LCNT_LB_COST, level_counter_LCNT_LB_DICE, level_counter_LCNT_REFUSED_HOT]
            .map(|counter| at_all_levels(&counted, counter))
    };
    let gated = refused(&[]);
    println!("refused by cost, dice, hotness: {gated:?}");
    assert!(gated[0] > 0 && gated[1] > 0, "{gated:?}");
    assert_eq!(refused(&["--fault", "no-gates"]), [0, 0, 0]);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn tasks_that_may_not_leave_their_node_are_refused_by_affinity() {
    let scheduler = Scheduler::start(&[]);
    let counted = scheduler.counted(|| {
        let confined = spinning(&vec![vec![0, 1, 2, 3]; 12]);
        let mut restless = Storm::default();
        restless.add("affinity changes", 4, change_affinity);
        std::thread::sleep(Duration::from_secs(5));
        restless.end();
        assert!(confined.cpus().iter().all(|&cpu| cpu < 4), "{:?}", confined.cpus());
    });
    assert!(at_all_levels(&counted, level_counter_LCNT_REFUSED_AFFINITY) > 0);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_puller_reads_no_queue_that_is_not_flagged() {
    // Sleepers on an otherwise idle machine: CPUs go idle all the time, no task ever waits long.
    let queues_read = |args: &[&str]| {
        let scheduler = Scheduler::start(args);
        std::thread::sleep(Duration::from_secs(2));
        let counted = scheduler.counted(|| {
            let canaries = Canaries::on(&EVERYWHERE.map(|cpu| vec![cpu]).collect::<Vec<_>>());
            std::thread::sleep(Duration::from_secs(3));
            canaries.end();
        });
        let tries = at_all_levels(&counted, level_counter_LCNT_LB_COUNT);
        (at_all_levels(&counted, level_counter_LCNT_LB_QUEUES_READ), tries)
    };
    let (read, tries) = queues_read(&["--fault", "no-hints"]);
    println!("without hints {read} queues read in {tries} tries");
    assert!(read > 100, "{read} in {tries} tries");
    let (flagged, tries) = queues_read(&[]);
    println!("with hints {flagged} queues read in {tries} tries");
    assert!(flagged * 10 < read, "{flagged} against {read}");
}

// ---- liveness ----

/// Loops that a task does in 5 s whose CPU a real-time task has taken, and tasks rescued.
fn behind_a_real_time_hog(args: &[&str]) -> (u64, u64) {
    let scheduler = Scheduler::start(args);
    let mut loops = 0;
    let counted = scheduler.counted(|| {
        let victims = spinning(&[vec![5], vec![5]]);
        (0..2).for_each(|victim| victims.release(victim));
        std::thread::sleep(Duration::from_secs(1));
        // The one that ends the hog must not be of its class, or it never gets to.
        let mut hog = std::process::Command::new("timeout")
            .args([
                "5",
                "chrt",
                "-f",
                "50",
                "taskset",
                "-c",
                "5",
                "sh",
                "-c",
                "while :; do :; done",
            ])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let before: u64 = victims.loops().iter().sum();
        std::thread::sleep(Duration::from_secs(3));
        loops = victims.loops().iter().sum::<u64>() - before;
        let _ = hog.wait();
    });
    (loops, at_all_levels(&counted, level_counter_LCNT_RESCUED))
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_queue_that_no_cpu_can_run_is_drained_whatever_the_flags() {
    let (loops, rescued) = behind_a_real_time_hog(&["--set", "none"]);
    let (stuck, none) = behind_a_real_time_hog(&["--set", "none", "--fault", "no-rescue"]);
    println!("{loops} loops, {rescued} rescued; without rescue {stuck} loops");
    assert!(rescued >= 1 && loops > 0);
    assert_eq!(none, 0);
    assert!(stuck < loops / 2, "{stuck} loops without rescue, {loops} with");
}

/// Storms and canaries for some seconds; the longest silence (ms) and the laws broken.
fn storm_under(args: &[&str]) -> (u64, Vec<String>) {
    let mut scheduler = Scheduler::start(args);
    let canaries = Canaries::on(&EVERYWHERE.map(|cpu| vec![cpu]).collect::<Vec<_>>());
    let mut storm = Storm::default();
    storm.add("affinity changes", 8, change_affinity);
    storm.add("forks and execs", 4, fork_and_exec);
    storm.add("hackbench runs", 1, hackbench);
    std::thread::sleep(Duration::from_secs(15));
    storm.end();
    assert!(scheduler.is_running());
    (canaries.end().into_iter().max().unwrap(), scheduler.broken_laws_once_quiet())
}

#[test]
#[ignore = "runs in the VM: make test"]
fn queues_wider_than_a_cpu_lose_nobody() {
    for width in ["2", "llc"] {
        let (silence, broken) = storm_under(&["--queue-cpus", width]);
        println!("queues of {width}: longest silence {silence} ms");
        assert!(silence < 15_000, "{silence} ms");
        assert_eq!(broken, Vec::<String>::new());
    }
}

#[test]
#[ignore = "runs in the VM: make test"]
fn latencies_are_counted_once_for_each_wakeup_that_ran() {
    let scheduler = Scheduler::start(&[]);
    let counted = scheduler.counted(|| {
        let canaries = Canaries::on(&[vec![2, 3]]);
        std::thread::sleep(Duration::from_secs(2));
        canaries.end();
    });
    let latencies: u64 = counted.total().latency.iter().flatten().sum();
    let wakeups = counted.total().get(cpu_counter_CNT_SELECT_CPU);
    assert!(latencies > 0 && latencies <= wakeups + 64, "{latencies} of {wakeups}");
}
