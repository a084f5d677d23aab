//! Work conservation, by the kernel's own account: how long runnable tasks waited
//! (run_delay of /proc/PID/task/TID/schedstat) while CPUs of the machine slept.
//!
//! A virtual CPU that the host does not run keeps its task "running", so the emulation's
//! stalls do not count as waiting.

mod common;

use std::time::Duration;

use common::load::{Spinners, node_of};
use common::scheduler::Scheduler;
use common::wait_until;

const LIMIT: Duration = Duration::from_secs(60);

/// Eight spinners that begin on CPU 0 and may then run anywhere.
fn eight_from_cpu_0() -> Spinners {
    let spinners = Spinners::on(&vec![vec![0]; 8]);
    assert!(wait_until(LIMIT, || spinners.loops().iter().all(|&loops| loops > 0)));
    (0..8).for_each(|spinner| spinners.release(spinner));
    std::thread::sleep(Duration::from_secs(5));
    spinners
}

/// The part of the next `time` (%) that the spinners wait for a CPU, over all of them.
fn percent_waiting(spinners: &Spinners, time: Duration) -> f64 {
    let (ran, waited) = (spinners.run_ns(), spinners.wait_ns());
    std::thread::sleep(time);
    let since =
        |now: Vec<u64>, then: &[u64]| -> u64 { now.iter().sum::<u64>() - then.iter().sum::<u64>() };
    let waited = since(spinners.wait_ns(), &waited) as f64;
    waited / (waited + since(spinners.run_ns(), &ran) as f64) * 100.0
}

#[test]
#[ignore = "runs in the VM: make test"]
fn nobody_waits_while_a_cpu_sleeps_where_newidle_is_on_everywhere() {
    let _scheduler = Scheduler::start(&[]);
    let spinners = eight_from_cpu_0();
    let waiting = percent_waiting(&spinners, Duration::from_secs(5));
    println!("on everywhere: {waiting:.1}% waiting, on CPUs {:?}", spinners.cpus());
    // Eight tasks, sixteen CPUs. Two ticks of each 100 ms would be 8%.
    assert!(waiting < 8.0, "{waiting:.1}%");
}

#[test]
#[ignore = "runs in the VM: make test"]
fn exactly_the_level_whose_newidle_is_off_is_not_conserved() {
    let _scheduler = Scheduler::start_with("NUMA.NEWIDLE=off");
    let spinners = eight_from_cpu_0();
    let waiting = percent_waiting(&spinners, Duration::from_secs(5));
    let mut cpus = spinners.cpus();
    println!("off at NUMA: {waiting:.1}% waiting, on CPUs {cpus:?}");
    cpus.sort_unstable();
    cpus.dedup();
    // Across nodes: twelve CPUs sleep while half of the tasks wait.
    assert!(cpus.iter().all(|&cpu| node_of(cpu) == 0), "{cpus:?}");
    assert!((waiting - 50.0).abs() < 10.0, "{waiting:.1}%");
    // Inside the node, where MC has the flag: no CPU sleeps.
    assert_eq!(cpus, [0, 1, 2, 3]);
}
