//! Workloads made of threads, which say where they are and how far they have come.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};

/// Lets the calling thread run on `cpus` only.
pub fn pin_to(cpus: impl IntoIterator<Item = usize>) {
    let mut set = CpuSet::new();
    cpus.into_iter().for_each(|cpu| set.set(cpu).expect("a CPU number"));
    sched_setaffinity(Pid::from_raw(0), &set).expect("set the thread's affinity");
}

pub fn node_of(cpu: usize) -> usize {
    cpu / 4
}

/// What a spinner tells: loops done, the CPU it is on.
#[derive(Default)]
pub struct Progress {
    pub loops: AtomicU64,
    pub cpu: AtomicUsize,
    /// CPU time that the kernel has charged, ns.
    pub run_ns: AtomicU64,
    is_released: AtomicBool,
    /// How long to sleep next, ms; 0 once that sleep has begun.
    pause_ms: AtomicU64,
    tid: AtomicI32,
    /// Times without progress of this thread, as (begin, end) in ns since the group's start.
    gaps: std::sync::Mutex<Vec<(u64, u64)>>,
}

/// Threads that never sleep, until the group is dropped.
pub struct Spinners {
    stop: Arc<AtomicBool>,
    pub progress: Vec<Arc<Progress>>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    /// One spinner for each entry: it may run on the entry's CPUs only.
    pub fn on(homes: &[Vec<usize>]) -> Spinners {
        let stop = Arc::new(AtomicBool::new(false));
        let origin = Instant::now();
        let progress: Vec<Arc<Progress>> = homes.iter().map(|_| Arc::default()).collect();
        let threads = homes
            .iter()
            .zip(&progress)
            .map(|(home, progress)| {
                let (stop, home, progress) = (stop.clone(), home.clone(), progress.clone());
                std::thread::spawn(move || spin(&home, &stop, &progress, origin))
            })
            .collect();
        Spinners { stop, progress, threads }
    }

    /// Lets a spinner run everywhere from now on; nothing moves it but the scheduler.
    pub fn release(&self, spinner: usize) {
        self.progress[spinner].is_released.store(true, Ordering::Relaxed);
    }

    /// Changes a spinner's nice value.
    pub fn renice(&self, spinner: usize, nice: i32) {
        let tid = self.progress[spinner].tid.load(Ordering::Relaxed).to_string();
        let status = Command::new("renice").args(["-n", &nice.to_string(), "-p", &tid]).status();
        assert!(status.expect("start renice").success());
    }

    /// Has a spinner sleep once.
    pub fn pause(&self, spinner: usize, time: Duration) {
        self.progress[spinner].pause_ms.store(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether the pause that was asked for has begun.
    pub fn is_paused(&self, spinner: usize) -> bool {
        self.progress[spinner].pause_ms.load(Ordering::Relaxed) == 0
    }

    pub fn loops(&self) -> Vec<u64> {
        self.progress.iter().map(|p| p.loops.load(Ordering::Relaxed)).collect()
    }

    /// The node on which each spinner was last seen.
    pub fn nodes(&self) -> Vec<usize> {
        self.progress.iter().map(|p| node_of(p.cpu.load(Ordering::Relaxed))).collect()
    }

    pub fn cpus(&self) -> Vec<usize> {
        self.progress.iter().map(|p| p.cpu.load(Ordering::Relaxed)).collect()
    }

    pub fn run_ns(&self) -> Vec<u64> {
        self.progress.iter().map(|p| p.run_ns.load(Ordering::Relaxed)).collect()
    }

    /// Time (ns) that each spinner was runnable and had no CPU, by the kernel's account.
    pub fn wait_ns(&self) -> Vec<u64> {
        self.progress.iter().map(|p| run_delay_ns(p.tid.load(Ordering::Relaxed))).collect()
    }

    /// Ends the spinners; what they have noted can still be asked.
    pub fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a spinner ends"));
    }

    /// After `finish`, the longest time (ns) that spinner `of` waited while one of `others` ran.
    ///
    /// A time in which none of them came on belongs to the host, which did not run the
    /// virtual CPU, and does not count.
    pub fn longest_wait(&self, of: usize, others: &[usize]) -> u64 {
        let gaps = self.progress[of].gaps.lock().unwrap().clone();
        let stalls: Vec<Vec<(u64, u64)>> =
            others.iter().map(|&o| self.progress[o].gaps.lock().unwrap().clone()).collect();
        gaps.iter().map(|&gap| time_others_ran(gap, &stalls)).max().unwrap_or(0)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Shorter pauses are timer ticks and translation of new code under emulation.
const SHORTEST_GAP_NS: u64 = 1_000_000;

fn spin(home: &[usize], stop: &AtomicBool, progress: &Progress, origin: Instant) {
    pin_to(home.iter().copied());
    progress.tid.store(gettid().as_raw(), Ordering::Relaxed);
    let mut is_wide = false;
    let mut last = origin.elapsed().as_nanos() as u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..200 {
            std::hint::black_box(progress.loops.load(Ordering::Relaxed));
        }
        progress.loops.fetch_add(1, Ordering::Relaxed);
        progress.cpu.store(sched_getcpu().expect("getcpu"), Ordering::Relaxed);
        progress.run_ns.store(thread_run_ns(), Ordering::Relaxed);
        last = progress.note_gap(last, origin);
        let pause_ms = progress.pause_ms.load(Ordering::Relaxed);
        if pause_ms > 0 {
            progress.pause_ms.store(0, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        if !is_wide && progress.is_released.load(Ordering::Relaxed) {
            pin_to(0..16);
            is_wide = true;
        }
    }
    progress.note_gap(last, origin);
}

/// The second field of schedstat: time spent waiting on a run queue.
fn run_delay_ns(tid: i32) -> u64 {
    let path = format!("/proc/self/task/{tid}/schedstat");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("run_delay")
}

fn thread_run_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the thread's clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

impl Progress {
    /// Notes the time since `last` if it is a gap; returns the time now.
    fn note_gap(&self, last: u64, origin: Instant) -> u64 {
        let now = origin.elapsed().as_nanos() as u64;
        if now - last > SHORTEST_GAP_NS {
            self.gaps.lock().unwrap().push((last, now));
        }
        now
    }
}

/// How much of `gap` at least one other thread ran: its whole less the common stalls.
fn time_others_ran(gap: (u64, u64), stalls: &[Vec<(u64, u64)>]) -> u64 {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for (begin, end) in stalls.iter().flatten() {
        let (begin, end) = ((*begin).max(gap.0), (*end).min(gap.1));
        if begin < end {
            edges.extend([(begin, 1), (end, -1)]);
        }
    }
    edges.sort_unstable();
    let (mut depth, mut stalled, mut since) = (0, 0, gap.0);
    for (at, step) in edges {
        if depth == stalls.len() as i32 {
            stalled += at - since;
        }
        depth += step;
        since = at;
    }
    (gap.1 - gap.0) - stalled
}
