//! The process outlives its attachments: detach, leases, CPUs that come and go.

mod common;

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use common::load::Spinners;
use common::scheduler::{Scheduler, kernel_state, scx_retune};
use common::wait_until;
use scx_retune::control::Response;
use scx_retune::control::history::{Cause, Entry};
use scx_retune::error::exit_code_of;

const OFF: &str = "NUMA.BALANCE_NEWIDLE=off";
const LIMIT: Duration = Duration::from_secs(90);

fn changes(history: &[Entry]) -> Vec<(u64, Cause, &str)> {
    history.iter().map(|e| (e.generation, e.cause, e.assignments.as_str())).collect()
}

// ---- detach and attach ----

#[test]
#[ignore = "runs in the VM: make test"]
fn detach_and_attach_keep_flags_generation_and_history() {
    let mut scheduler = Scheduler::start(&[]);
    scheduler.set(OFF);
    let flags = scheduler.flags();
    let detached = scheduler.detach();
    assert!(!detached.is_attached && detached.has_changed);
    assert_eq!(kernel_state(), "disabled", "detach answers when it is done");
    assert!(scheduler.is_alive());
    assert_eq!(scheduler.flags(), flags);
    let refusal = scheduler.try_stats().expect_err("there is nothing to count");
    assert_eq!(exit_code_of(&refusal), 3, "{refusal:#}");
    let later = scheduler.set("MC@node1.WAKE_AFFINE=off");
    assert!(!later.is_in_effect && later.generation == 2);

    let attached = scheduler.attach();
    assert_eq!(kernel_state(), "enabled", "attach answers when it is done");
    assert_eq!((attached.epoch, attached.generation), (2, 2));
    let stats = scheduler.stats();
    assert_eq!((stats.epoch, stats.generation), (2, 2));
    assert!(scheduler.flags().contains("MC@cpus4-7.WAKE_AFFINE=off"), "{}", scheduler.flags());
    assert!(!scheduler.attach().has_changed, "it is attached already");
    let history = scheduler.history();
    assert_eq!(
        changes(&history),
        [(0, Cause::Start, ""), (1, Cause::Set, OFF), (2, Cause::Set, "MC@node1.WAKE_AFFINE=off")]
    );
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_signal_while_detached_ends_it_with_0() {
    let scheduler = Scheduler::start(&[]);
    scheduler.detach();
    assert_eq!(scheduler.end(nix::sys::signal::Signal::SIGTERM), Some(0));
}

#[test]
#[ignore = "runs in the VM: make test"]
fn an_attach_beside_another_scheduler_is_refused_and_can_be_made_later() {
    let first = Scheduler::start(&[]);
    first.detach();
    let mut second = scx_retune(&["run", "--socket", "/run/second.sock"]).spawn().unwrap();
    assert!(wait_until(LIMIT, || kernel_state() == "enabled"));
    let output = scx_retune(&["attach"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("another sched_ext scheduler is loaded"), "{message}");
    let detach = scx_retune(&["detach", "--socket", "/run/second.sock"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&detach.stdout), "detached: epoch 1, generation 0\n");
    assert!(first.attach().has_changed);
    second.kill().unwrap();
    second.wait().unwrap();
}

// ---- leases ----

/// `set --lease` that lasts until its standard input ends, which is when it is dropped.
fn lease(assignments: &str) -> Child {
    scx_retune(&["set", "--lease", assignments])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_turned_soon(scheduler: &Scheduler, before: &str) -> bool {
    wait_until(LIMIT, || scheduler.flags() != before)
}

fn is_restored_soon(scheduler: &Scheduler, before: &str) -> bool {
    wait_until(LIMIT, || scheduler.flags() == before)
}

#[test]
#[ignore = "runs in the VM: make test"]
fn kill_9_of_a_lease_holder_restores_the_flags() {
    let scheduler = Scheduler::start(&[]);
    let before = scheduler.flags();
    let mut holder = lease(OFF);
    assert!(is_turned_soon(&scheduler, &before));
    holder.kill().unwrap();
    assert!(is_restored_soon(&scheduler, &before));
    let history = scheduler.history();
    let expected = [(0, Cause::Start, ""), (1, Cause::Lease, OFF), (2, Cause::LeaseEnded, "")];
    assert_eq!(changes(&history), expected);
    assert_eq!(history[2].pid, Some(holder.id() as i32));
    holder.wait().unwrap();
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_lease_ends_with_its_input_or_its_command_and_a_later_set_stays() {
    let scheduler = Scheduler::start(&[]);
    let before = scheduler.flags();
    let mut holder = lease(OFF);
    assert!(is_turned_soon(&scheduler, &before));
    drop(holder.stdin.take());
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    assert_eq!(scheduler.flags(), before, "ended before the client did");

    let script =
        format!("{} set NUMA@node0.BALANCE_NEWIDLE=off; exit 7", env!("CARGO_BIN_EXE_scx_retune"));
    let status = scx_retune(&["set", "--lease", OFF, "--", "sh", "-c", &script]).status().unwrap();
    assert_eq!(status.code(), Some(7));
    scheduler.set("NUMA@node0.BALANCE_NEWIDLE=on");
    assert_eq!(scheduler.flags(), before, "all but node 0 was restored");
    let last = scheduler.history().pop().unwrap();
    assert_eq!(last.words_changed, 4, "node 0 was not");
}

// ---- CPUs that come and go ----

fn set_online(cpus: impl IntoIterator<Item = usize>, online: bool) {
    for cpu in cpus {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        fs::write(&file, if online { "1" } else { "0" }).expect(&file);
    }
}

/// Brings every CPU back, also for the next test where this one fails.
struct AllBack;

impl Drop for AllBack {
    fn drop(&mut self) {
        set_online(1..16, true);
    }
}

/// Waits for a later attachment than `after`; returns its epoch.
///
/// The load keeps the loader from the host's two cores too: its answer may take minutes.
fn attached_epoch(scheduler: &mut Scheduler, after: u64) -> u64 {
    let mut epoch = after;
    let is_new = wait_until(3 * LIMIT, || {
        assert!(scheduler.is_alive(), "the process ended");
        if let Ok(Response::Stats(stats)) = scheduler.try_stats() {
            epoch = stats.epoch;
        }
        epoch > after && kernel_state() == "enabled"
    });
    assert!(is_new, "epoch {epoch} after {after}, {}", kernel_state());
    epoch
}

#[test]
#[ignore = "runs in the VM: make test"]
fn cpus_come_and_go_under_load_and_flags_generation_and_history_stay() {
    let mut scheduler = Scheduler::start(&["--set", "2009-affine"]);
    scheduler.set("NUMA@node2.WAKE_AFFINE=off");
    let _all_back = AllBack;
    // Two lose CPUs under them. Few: they take the loader's time too, a restart beside seven of
    // them took 50 s on the host's two cores.
    let homes = [vec![5, 6], vec![8, 0], (0..16).collect()];
    let load = Spinners::on(&homes);
    let (flags, history) = (scheduler.flags(), scheduler.history());
    let mut epoch = scheduler.stats().epoch;
    let steps: [(&[usize], bool); 4] =
        [(&[5], false), (&[5], true), (&[8, 9, 10, 11], false), (&[8, 9, 10, 11], true)];
    for (cpus, online) in steps {
        set_online(cpus.iter().copied(), online);
        epoch = attached_epoch(&mut scheduler, epoch);
        println!("CPUs {cpus:?} online: {online}, epoch {epoch}");
        assert_eq!(scheduler.history(), history);
        let before = load.loops();
        let is_moving = |now: Vec<u64>| now.iter().zip(&before).all(|(now, then)| now > then);
        assert!(wait_until(LIMIT, || is_moving(load.loops())), "every spinner goes on");
    }
    assert_eq!(scheduler.flags(), flags, "all CPUs are back, and so are their flags");
    assert_eq!(scheduler.stats().generation, history.last().unwrap().generation);
    drop(load);
    assert_eq!(scheduler.broken_laws_once_quiet(), Vec::<String>::new());
    let log = scheduler.end_and_tell();
    assert!(log.contains("the machine's CPUs changed, attaching anew"), "{log}");
    for machine in ["15 CPUs, 4 nodes", "12 CPUs, 3 nodes", "16 CPUs, 4 nodes"] {
        assert!(log.contains(&format!("attached, {machine}")), "{machine}: {log}");
    }
}

#[test]
#[ignore = "runs in the VM: make test"]
fn a_set_during_a_restart_is_applied_to_the_new_attachment() {
    let mut scheduler = Scheduler::start(&[]);
    let _all_back = AllBack;
    let epoch = scheduler.stats().epoch;
    set_online([6], false);
    let during = scheduler.set(OFF);
    attached_epoch(&mut scheduler, epoch);
    assert_eq!(scheduler.stats().generation, during.generation);
    assert!(scheduler.flags().contains("NUMA1.BALANCE_NEWIDLE=off"), "{}", scheduler.flags());
    set_online([6], true);
    attached_epoch(&mut scheduler, epoch + 1);
    assert!(scheduler.is_running());
}

#[test]
#[ignore = "runs in the VM: make test"]
fn cpus_that_change_while_detached_are_seen_by_the_next_attach() {
    let scheduler = Scheduler::start(&[]);
    let _all_back = AllBack;
    scheduler.detach();
    set_online([13], false);
    scheduler.attach();
    let stats = scheduler.stats();
    set_online([13], true);
    assert_eq!((stats.epoch, stats.rows.len()), (2, 17), "a row for each possible CPU");
    let log = scheduler.end_and_tell();
    assert!(log.contains("attached, 15 CPUs"), "{log}");
}
