//! Attaching and ending: whatever happens to the loader, the machine goes back to the kernel.

mod common;

use common::load::Spinners;
use common::scheduler::{Scheduler, is_disabled_soon, kernel_state, scx_retune};
use nix::sys::signal::Signal;

#[test]
#[ignore = "runs in the VM: make test"]
fn a_signal_ends_it_with_0_and_the_kernel_schedules_again() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut scheduler = Scheduler::start(&[]);
        assert!(scheduler.is_running());
        assert_eq!(scheduler.end(signal), Some(0), "{signal}");
    }
}

#[test]
#[ignore = "runs in the VM: make test"]
fn kill_9_under_load_returns_the_machine_to_the_kernel() {
    let scheduler = Scheduler::start(&[]);
    let everywhere: Vec<usize> = (0..16).collect();
    let load = Spinners::on(&vec![everywhere; 32]);
    assert_eq!(scheduler.end(Signal::SIGKILL), None);
    let before = load.loops();
    assert!(
        common::wait_until(std::time::Duration::from_secs(30), || {
            load.loops().iter().zip(&before).all(|(now, then)| now > then)
        }),
        "every spinner goes on under the kernel's own scheduler"
    );
    drop(load);
    drop(Scheduler::start(&[]));
}

#[test]
#[ignore = "runs in the VM: make test"]
fn beside_another_scheduler_run_says_which_and_exits_with_3() {
    let scheduler = Scheduler::start(&[]);
    let output = scx_retune(&["run", "--socket", "/run/second.sock"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("another sched_ext scheduler is loaded (retune"), "{message}");
    drop(scheduler);
}

#[test]
#[ignore = "runs in the VM: make test"]
fn an_ejection_prints_the_kernels_reason_and_exits_with_4() {
    // Two spinners alternate on the local DSQ for ever; the queue behind it starves.
    let mut child = scx_retune(&["run", "--fault", "pinned-to-local", "--set", "none"])
        .env("SCX_TIMEOUT_MS", "2000")
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert!(common::wait_until(std::time::Duration::from_secs(60), || kernel_state() == "enabled"));
    let mut homes = vec![vec![3], vec![3]];
    homes.extend((0..16).map(|cpu| vec![cpu]));
    let pinned = Spinners::on(&homes);
    let unpinned = Spinners::on(&[vec![3, 2]]);
    let status = child.wait().unwrap();
    drop((pinned, unpinned));
    let mut message = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut message).unwrap();
    assert_eq!(status.code(), Some(4), "{message}");
    assert!(message.contains("runnable task stall"), "{message}");
    assert!(is_disabled_soon());
}

#[test]
#[ignore = "runs in the VM: make test"]
fn without_privilege_run_says_so_and_exits_with_3() {
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_scx_retune"), "run"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs root"));
}
