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

/// How many loops each of the first three does in the next `time`.
fn loops_in(spinners: &Spinners, time: Duration) -> Vec<u64> {
    let before = spinners.loops();
    std::thread::sleep(time);
    spinners.loops().iter().zip(&before).take(3).map(|(now, then)| now - then).collect()
}

#[test]
#[ignore = "runs in the VM: make test"]
fn pinned_hogs_and_an_unpinned_task_share_a_cpu_evenly() {
    let _scheduler = Scheduler::start_with("none");
    let spinners = three_hogs_on_cpu_3();
    let loops = loops_in(&spinners, Duration::from_secs(20));
    let share = loops.iter().sum::<u64>() as f64 / 3.0;
    let waits: Vec<u64> = [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])]
        .map(|(of, others)| spinners.longest_wait(of, &others) / 1_000_000)
        .to_vec();
    println!("loops {loops:?}, longest waits {waits:?} ms");
    for (index, &done) in loops.iter().enumerate() {
        let off = (done as f64 - share).abs() / share;
        assert!(off < 0.10, "spinner {index} is {:.1}% off: {loops:?}", off * 100.0);
    }
    assert!(waits.iter().all(|&ms| ms <= 200), "{waits:?}");
}
