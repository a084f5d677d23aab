//! Load of every ugly kind: nothing is ejected, nobody starves, the counters' laws hold.

mod common;

use std::process::Command;
use std::time::Duration;

use common::load::Spinners;
use common::scheduler::Scheduler;
use common::storm::{Canaries, Storm, change_affinity, fork_and_exec, hackbench};
use common::{Random, wait_until};

/// Half of the time after which the kernel's watchdog ejects a scheduler (30 s): a canary
/// that is silent for so long starves, however slow the emulation is.
const STARVED_MS: u64 = 15_000;

fn each_cpu() -> Vec<Vec<usize>> {
    (0..16).map(|cpu| vec![cpu]).collect()
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_minute_of_affinity_fork_and_exec_storms_starves_nobody() {
    let mut scheduler = Scheduler::start(&[]);
    let canaries = Canaries::on(&[each_cpu(), vec![(0..16).collect(); 4]].concat());
    let mut storm = Storm::default();
    storm.add("affinity changes", 8, change_affinity);
    storm.add("forks and execs", 4, fork_and_exec);
    storm.add("hackbench runs", 1, hackbench);
    std::thread::sleep(Duration::from_secs(60));
    let done = storm.end();
    let silences = canaries.end();
    println!("{done:?}, longest silences {silences:?} ms");
    assert!(done.iter().all(|(_, count)| *count > 0), "{done:?}");
    assert!(silences.iter().all(|&ms| ms < STARVED_MS), "{silences:?}");
    assert!(scheduler.is_running());
    assert_eq!(scheduler.broken_laws_once_quiet(), Vec::<String>::new());
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_canary_that_starves_is_noticed() {
    let _scheduler = Scheduler::start_faulty("pinned-to-local", "none");
    // Two hogs alternate on CPU 3's local DSQ; what waits in its queue never runs.
    let hogs = Spinners::on(&[each_cpu(), vec![vec![3]]].concat());
    assert!(wait_until(Duration::from_secs(60), || hogs.loops().iter().all(|&loops| loops > 0)));
    let canaries = Canaries::on(&[vec![3, 2]]);
    std::thread::sleep(Duration::from_millis(STARVED_MS + 2_000));
    drop(hogs);
    let silences = canaries.end();
    assert!(silences[0] >= STARVED_MS, "{silences:?}");
}

/// A random `set`: one or two assignments, or a preset.
fn random_set(random: &mut Random) -> String {
    const LEVELS: &[&str] = &["SMT", "MC", "NUMA", "NUMA1", "NUMA2", "NUMA3", "*"];
    const SETS: &[&str] = &["", "", "@node0", "@node3", "@cpus0-7", "@cpus5", "@llc2"];
    const PRESETS: &[&str] = &["mainline", "none", "all", "2009-before", "2009-affine"];
    if random.below(16) == 0 {
        return random.pick(PRESETS).to_string();
    }
    let flags = ["WAKE_AFFINE", "NEWIDLE"].map(|flag| {
        let (level, set) = (random.pick(LEVELS), random.pick(SETS));
        format!("{level}{set}.{flag}={}", random.pick(&["on", "off"]))
    });
    flags[..1 + random.below(2)].join(",")
}

#[test]
#[ignore = "runs in the VM: make test"]
fn ten_thousand_random_flips_under_load_stall_nothing_and_break_no_law() {
    let mut scheduler = Scheduler::start(&[]);
    let canaries = Canaries::on(&each_cpu());
    let everywhere: Vec<usize> = (0..16).collect();
    let spinners = Spinners::on(&vec![everywhere; 4]);
    let mut storm = Storm::default();
    storm.add("hackbench runs", 1, hackbench);
    let mut random = Random(2009);
    let mut words_changed = 0;
    for _ in 0..10_000 {
        words_changed += scheduler.set(&random_set(&mut random)).words_changed;
    }
    let done = storm.end();
    drop(spinners);
    let silences = canaries.end();
    println!("{words_changed} words changed, {done:?}, longest silences {silences:?} ms");
    assert!(words_changed > 10_000);
    assert!(silences.iter().all(|&ms| ms < STARVED_MS), "{silences:?}");
    assert!(scheduler.is_running());
    assert_eq!(scheduler.broken_laws_once_quiet(), Vec::<String>::new());
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_miscounted_exit_breaks_a_law() {
    let scheduler = Scheduler::start(&["--fault", "miscount"]);
    hackbench(&mut Random(1));
    let broken = scheduler.broken_laws_once_quiet();
    assert!(broken.iter().any(|law| law.starts_with("dispatch:")), "{broken:?}");
}

/// Runs one stressor for some seconds; returns its bogo operations.
fn stress(stressor: &str) -> u64 {
    // The exec stressor refuses to run as root; schedpolicy needs to.
    let user = if stressor == "exec" { "65534" } else { "0" };
    let output = Command::new("setpriv")
        .args(["--reuid", user, "--regid", user, "--clear-groups", "stress-ng"])
        .args([&format!("--{stressor}"), "8", "--timeout", "4", "--metrics-brief"])
        .current_dir("/tmp")
        .output()
        .expect("start stress-ng (scripts/setup installs it)");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{stressor}: {}: {text}", output.status);
    let row = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != stressor);
        words.next()?;
        words.next()?.parse().ok()
    });
    row.unwrap_or_else(|| panic!("{stressor}: no operation count in {text}"))
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_minute_of_stress_ngs_scheduler_stressors_runs_each_to_its_end() {
    const STRESSORS: &[&str] = &[
        "affinity", "clone", "exec", "fork", "futex", "mutex", "nice", "pthread", "poll", "sem",
        "sleep", "switch", "vfork", "wait", "yield",
    ];
    let mut scheduler = Scheduler::start(&[]);
    let canaries = Canaries::on(&each_cpu());
    let operations: Vec<(&str, u64)> = STRESSORS.iter().map(|name| (*name, stress(name))).collect();
    let silences = canaries.end();
    println!("{operations:?}, longest silences {silences:?} ms");
    assert!(operations.iter().all(|(_, count)| *count > 0), "{operations:?}");
    assert!(silences.iter().all(|&ms| ms < STARVED_MS), "{silences:?}");
    assert!(scheduler.is_running());
}
