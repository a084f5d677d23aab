//! Who gets how much of a CPU, and that nobody waits for ever.

mod common;

use std::time::Duration;

use common::load::Spinners;
use common::scheduler::Scheduler;
use common::wait_until;

/// Two spinners pinned to CPU 3 and one that may leave it, but has no reason to: all flags
/// are off and every other CPU is busy.
fn three_hogs_on_cpu_3() -> Spinners {
    let mut homes = vec![vec![3], vec![3], vec![3]];
    homes.extend((0..16).filter(|&cpu| cpu != 3).map(|cpu| vec![cpu]));
    let spinners = Spinners::on(&homes);
    assert!(wait_until(Duration::from_secs(60), || spinners.loops().iter().all(|&l| l > 0)));
    spinners.release(2);
    spinners
}

/// The CPU time, in ms, that the kernel charges each of the first three in the next `time`.
fn run_ms_in(spinners: &Spinners, time: Duration) -> Vec<u64> {
    let before = spinners.run_ns();
    std::thread::sleep(time);
    let after = spinners.run_ns();
    after.iter().zip(&before).take(3).map(|(now, then)| (now - then) / 1_000_000).collect()
}

fn percent_off(run_ms: &[u64]) -> Vec<f64> {
    let share = run_ms.iter().sum::<u64>() as f64 / run_ms.len() as f64;
    run_ms.iter().map(|&ms| (ms as f64 - share) / share * 100.0).collect()
}

#[test]
#[ignore = "runs in the VM: make test"]
fn pinned_hogs_and_an_unpinned_task_share_a_cpu_evenly() {
    let _scheduler = Scheduler::start_with("none");
    let mut spinners = three_hogs_on_cpu_3();
    let run_ms = run_ms_in(&spinners, Duration::from_secs(20));
    spinners.finish();
    let waits: Vec<u64> = [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])]
        .map(|(of, others)| spinners.longest_wait(of, &others) / 1_000_000)
        .to_vec();
    println!("ran {run_ms:?} ms, {:.1?} % off, longest waits {waits:?} ms", percent_off(&run_ms));
    assert!(percent_off(&run_ms).iter().all(|off| off.abs() < 10.0), "{run_ms:?}");
    assert!(waits.iter().all(|&ms| ms <= 200), "{waits:?}");
}

#[test]
#[ignore = "runs in the VM: make test"]
fn hogs_on_the_local_dsq_starve_the_task_behind_them() {
    let _scheduler = Scheduler::start_faulty("pinned-to-local", "none");
    let spinners = three_hogs_on_cpu_3();
    let run_ms = run_ms_in(&spinners, Duration::from_secs(10));
    println!("ran {run_ms:?} ms");
    assert!(percent_off(&run_ms)[2] < -90.0, "{run_ms:?}");
}
