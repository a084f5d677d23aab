//! The processes of a ring: started on their CPUs, let go together, waited for.
//!
//! A process that dies closes its pipes; its neighbours see that and end, and theirs after them.
//! So a broken ring ends by itself, and the first cause is found among the exit codes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, close};

use super::member::{Link, Log, Member, WorkingSet};
use super::plan::Plan;
use super::process;
use super::report::ProcessLog;
use crate::error::Error;

/// Exit codes of a process of the ring.
const DONE: u8 = 0;
const RING_BROKE: u8 = 1;
const TOKEN_LOST: u8 = 2;
const NOT_STARTED: u8 = 3;

/// A pipe's ends: what is written to `output` is read from `input`.
fn pipe() -> anyhow::Result<Link> {
    let (input, output) = std::io::pipe().map_err(|error| {
        Error::environment(format!(
            "cannot make a pipe: {error}; ask for fewer processes or raise the limit of open files \
             (ulimit -n)"
        ))
    })?;
    Ok(Link { input: input.into(), output: output.into() })
}

/// Lets this process open the pipes of its largest ring. Where that is refused, `pipe` says so.
pub(super) fn raise_file_limit(plans: &[Plan]) {
    // Two pipes for each process, and room for what is open already.
    let needed = plans.iter().map(|plan| plan.procs as u64 * 4 + 64).max().unwrap_or(0);
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed).min(hard), hard);
    }
}

/// Chosen: long enough for a median over the clock's and the machine's noise.
const OVERHEAD_TIME: Duration = Duration::from_millis(100);

/// What the token and the working set cost one process without a switch, in microseconds.
pub(super) fn overhead_us(size_kb: usize) -> anyhow::Result<f64> {
    let link = pipe()?;
    let set = WorkingSet::new(size_kb);
    let first = solo_us(&link, &set, 1)?;
    // About a millisecond for each sample.
    let passes = (1000.0 / first.max(0.1)).clamp(1.0, 1024.0) as u32;
    let mut samples = Vec::new();
    let start = Instant::now();
    while start.elapsed() < OVERHEAD_TIME || samples.len() < 3 {
        samples.push(solo_us(&link, &set, passes)?);
    }
    Ok(super::report::median(&samples))
}

fn solo_us(link: &Link, set: &WorkingSet, passes: u32) -> nix::Result<f64> {
    let start = Instant::now();
    for token in 0..passes {
        set.sum();
        link.send(token)?;
        link.receive()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(passes))
}

/// Runs one ring from start to end.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Vec<ProcessLog>> {
    let go = pipe()?;
    let mut children = Children::start(plan, &go)?;
    children.wait_until_ready();
    // The end of this pipe is the signal to go, and to find a dead neighbour.
    drop(go);
    children.finish()
}

fn read_log(report: &mut File) -> Option<ProcessLog> {
    let mut bytes = Vec::new();
    report.read_to_end(&mut bytes).ok()?;
    ProcessLog::decode(&bytes)
}

/// The cause: a signal or an own failure comes before the neighbours' broken pipes.
fn first_failure(statuses: &[WaitStatus]) -> Option<Error> {
    let failures = statuses.iter().enumerate().filter_map(|(process, status)| match *status {
        WaitStatus::Exited(_, code) if code == i32::from(DONE) => None,
        WaitStatus::Exited(_, code) if code == i32::from(RING_BROKE) => Some((1, process, *status)),
        WaitStatus::Signaled(_, Signal::SIGPIPE, _) => Some((1, process, *status)),
        status => Some((0, process, status)),
    });
    let (_, process, status) = failures.min_by_key(|&(rank, process, _)| (rank, process))?;
    Some(Error::environment(format!(
        "process {process} of the ring {}; the other processes were ended, run it again",
        describe(status)
    )))
}

fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Signaled(_, signal, _) => format!("was killed by {signal}"),
        WaitStatus::Exited(_, code) => match u8::try_from(code) {
            Ok(RING_BROKE) => "found its pipe closed".to_owned(),
            Ok(TOKEN_LOST) => "got a token back that is not the one it sent".to_owned(),
            Ok(NOT_STARTED) => "could not set its CPU affinity".to_owned(),
            _ => format!("ended with exit code {code}"),
        },
        status => format!("ended as {status:?}"),
    }
}

/// What one process is given.
struct Seat {
    link: Link,
    report: File,
    affinity: Option<Affinity>,
}

/// Where a process begins, and where it may go then.
#[derive(Clone, Copy)]
struct Affinity {
    begin: CpuSet,
    then: CpuSet,
}

impl Affinity {
    fn new(plan: &Plan, process: usize) -> anyhow::Result<Option<Affinity>> {
        let Some(cpu) = plan.start_cpu(process) else {
            return Ok(None);
        };
        let mut begin = CpuSet::new();
        begin.set(cpu)?;
        let then = if plan.pinned { begin } else { sched_getaffinity(Pid::from_raw(0))? };
        Ok(Some(Affinity { begin, then }))
    }
}

fn set_affinity(affinity: Option<CpuSet>) -> nix::Result<()> {
    affinity.map_or(Ok(()), |cpus| sched_setaffinity(Pid::from_raw(0), &cpus))
}

/// The seats of a ring, and the ends that their reports are read from.
fn make_seats(plan: &Plan) -> anyhow::Result<(Vec<Seat>, Vec<File>)> {
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..plan.procs {
        let Link { input, output } = pipe()?;
        inputs.push(input);
        outputs.push(output);
    }
    // Process i reads pipe i and writes pipe i + 1.
    outputs.rotate_left(1);
    let links = inputs.into_iter().zip(outputs).map(|(input, output)| Link { input, output });
    let seats = links.enumerate().map(|(process, link)| make_seat(plan, process, link));
    Ok(seats.collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip())
}

fn make_seat(plan: &Plan, process: usize, link: Link) -> anyhow::Result<(Seat, File)> {
    let report = pipe()?;
    let affinity = Affinity::new(plan, process)?;
    Ok((Seat { link, report: report.output.into(), affinity }, report.input.into()))
}

/// All that a forked process does; its exit code.
fn sit(plan: &Plan, process: usize, seats: &[Seat], go: &Link, memory: &mut Memory) -> u8 {
    close_the_others(process, seats, go);
    let seat = &seats[process];
    if seat.get_ready(memory, go).is_err() {
        return NOT_STARTED;
    }
    let mut member =
        Member { link: &seat.link, set: &memory.set, log: &mut memory.log, procs: plan.procs };
    let outcome = match process {
        0 => member.lead(plan.repetitions, plan.goal),
        _ => member.follow(),
    };
    match outcome.map(|()| memory.log.send(&seat.report)) {
        Ok(Ok(())) => DONE,
        Err(Errno::EBADMSG) => TOKEN_LOST,
        _ => RING_BROKE,
    }
}

/// A pipe is seen as closed only when nobody else holds its end. The process leaves without
/// dropping its copies of the owners, so nothing is closed a second time.
fn close_the_others(process: usize, seats: &[Seat], go: &Link) {
    let others = seats.iter().enumerate().filter(|&(other, _)| other != process);
    for (_, seat) in others {
        let _ = close(seat.link.input.as_raw_fd());
        let _ = close(seat.link.output.as_raw_fd());
        let _ = close(seat.report.as_raw_fd());
    }
    let _ = close(go.output.as_raw_fd());
}

impl Seat {
    /// Goes to the start CPU, says so, waits for the signal and is let go.
    fn get_ready(&self, memory: &mut Memory, go: &Link) -> std::io::Result<()> {
        set_affinity(self.affinity.map(|affinity| affinity.begin))?;
        memory.set.make_private();
        (&self.report).write_all(&[READY])?;
        go.receive()?;
        memory.log.begin();
        Ok(set_affinity(self.affinity.map(|affinity| affinity.then))?)
    }
}

/// The first byte of a report.
const READY: u8 = 1;

/// What a process needs, made before it is forked; each gets its own copy by that.
struct Memory {
    set: WorkingSet,
    log: Log,
}

/// Started processes; those not waited for are killed.
struct Children {
    pids: Vec<Pid>,
    reports: Vec<File>,
}

impl Children {
    fn start(plan: &Plan, go: &Link) -> anyhow::Result<Children> {
        let (seats, reports) = make_seats(plan)?;
        let mut children = Children { pids: Vec::new(), reports };
        let mut memory =
            Memory { set: WorkingSet::new(plan.size_kb), log: Log::new(plan.repetitions) };
        for process in 0..plan.procs {
            let pid = process::spawn(|| sit(plan, process, &seats, go, &mut memory));
            children.pids.push(pid.context("cannot start a process of the ring")?);
        }
        Ok(children)
    }

    /// Until each process is on its start CPU, or dead: `finish` tells which.
    fn wait_until_ready(&mut self) {
        for report in &mut self.reports {
            let _ = report.read_exact(&mut [0; 1]);
        }
    }

    fn finish(mut self) -> anyhow::Result<Vec<ProcessLog>> {
        let logs: Vec<Option<ProcessLog>> = self.reports.iter_mut().map(read_log).collect();
        let pids = std::mem::take(&mut self.pids);
        let statuses: Vec<WaitStatus> =
            pids.iter().map(|&pid| wait_for(pid)).collect::<nix::Result<_>>()?;
        if let Some(failure) = first_failure(&statuses) {
            return Err(failure.into());
        }
        let logs: Option<Vec<ProcessLog>> = logs.into_iter().collect();
        let logs = logs.context("a process of the ring sent no report")?;
        let with_pid = |(log, pid): (ProcessLog, &Pid)| ProcessLog { pid: pid.as_raw(), ..log };
        Ok(logs.into_iter().zip(&pids).map(with_pid).collect())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for &pid in &self.pids {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = wait_for(pid);
        }
    }
}

fn wait_for(pid: Pid) -> nix::Result<WaitStatus> {
    loop {
        match waitpid(pid, None) {
            Err(Errno::EINTR) => continue,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Goal;
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// A test's children would hold the pipes of the tests that run beside it.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(procs: usize, goal: Goal) -> Plan {
        Plan { procs, size_kb: 4, repetitions: 2, goal, start: Vec::new(), pinned: false }
    }

    fn first_allowed_cpu() -> usize {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap()).unwrap()
    }

    #[test]
    fn the_token_goes_round_as_often_as_it_was_asked_to() {
        let _alone = alone();
        let logs = run(&plan(3, Goal::Passes(200))).unwrap();
        assert_eq!(logs.len(), 3);
        let passes: Vec<u64> = logs[0].stretches.iter().map(|stretch| stretch.passes).collect();
        assert_eq!(passes, [200, 200]);
        for log in &logs {
            assert_eq!(log.passes, 416, "with the warm-up");
            assert_eq!(log.samples.iter().map(|(_, count)| count).sum::<u64>(), 7);
        }
    }

    #[test]
    fn a_timed_repetition_lasts_at_least_as_long() {
        let _alone = alone();
        let length = Duration::from_millis(5);
        let logs = run(&plan(2, Goal::Time(length))).unwrap();
        assert!(logs[0].stretches.iter().all(|stretch| stretch.elapsed >= length));
        assert!(logs[1].stretches.is_empty());
    }

    #[test]
    fn pinned_processes_stay_where_they_are() {
        let _alone = alone();
        let cpu = first_allowed_cpu();
        let pinned = Plan { start: vec![cpu], pinned: true, ..plan(2, Goal::Passes(100)) };
        for log in run(&pinned).unwrap() {
            assert_eq!(log.samples, [(cpu, 4)], "216 passes, one sample in 64");
            assert_eq!(log.last_cpu, cpu);
        }
    }

    #[test]
    fn started_processes_begin_on_their_cpus_and_are_let_go() {
        let _alone = alone();
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let mut start: Vec<usize> =
            (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap()).collect();
        start.reverse();
        let plan = Plan { start: start.clone(), ..plan(2, Goal::Passes(1)) };
        assert_eq!(Affinity::new(&plan, 1).unwrap().unwrap().then, allowed);
        let began: Vec<usize> = run(&plan).unwrap().iter().map(|log| log.first_cpu).collect();
        assert_eq!(began, [start[0], start[1 % start.len()]]);
    }

    #[test]
    fn a_dead_process_ends_the_run_and_is_named() {
        let _alone = alone();
        let go = pipe().unwrap();
        let endless = plan(4, Goal::Time(Duration::from_secs(3600)));
        let mut children = Children::start(&endless, &go).unwrap();
        children.wait_until_ready();
        drop(go);
        kill(children.pids[2], Signal::SIGKILL).unwrap();
        let error = children.finish().unwrap_err().to_string();
        assert!(error.starts_with("process 2 of the ring was killed by SIGKILL"), "{error}");
    }

    #[test]
    fn a_process_that_cannot_start_ends_the_run_and_is_named() {
        let _alone = alone();
        let nowhere = Plan { start: vec![1000], ..plan(2, Goal::Passes(1)) };
        let error = run(&nowhere).unwrap_err().to_string();
        assert!(error.starts_with("process 0 of the ring could not set its CPU"), "{error}");
    }

    #[test]
    fn the_own_overhead_is_more_than_nothing() {
        assert!(overhead_us(0).unwrap() > 0.0);
    }
}
