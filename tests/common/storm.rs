//! Storms: many short-lived or restless tasks, and canaries that notice starvation.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::sched_getcpu;

use super::Random;
use super::load::pin_to;

/// Threads that each do one thing again and again until the storm is ended.
#[derive(Default)]
pub struct Storm {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counts: Vec<(&'static str, Arc<AtomicU64>)>,
}

impl Storm {
    /// Adds `threads` threads that repeat `work`, each with a generator of its own.
    pub fn add(
        &mut self,
        name: &'static str,
        threads: u64,
        work: impl Fn(&mut Random) + Clone + Send + 'static,
    ) {
        let done = Arc::new(AtomicU64::new(0));
        self.counts.push((name, done.clone()));
        for seed in 1..=threads {
            let (stop, done, work) = (self.stop.clone(), done.clone(), work.clone());
            self.threads.push(std::thread::spawn(move || {
                let mut random = Random(seed * 0x9E37_79B9);
                while !stop.load(Ordering::Relaxed) {
                    work(&mut random);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }

    /// Ends all threads; returns how often each kind of work was done.
    pub fn end(self) -> Vec<(&'static str, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a storm's thread found nothing wrong");
        }
        self.counts.iter().map(|(name, done)| (*name, done.load(Ordering::Relaxed))).collect()
    }
}

/// Moves the calling thread to random CPUs; panics if it then runs on another.
pub fn change_affinity(random: &mut Random) {
    let count = 1 + random.below(4);
    let cpus: Vec<usize> = (0..count).map(|_| random.below(16)).collect();
    pin_to(cpus.iter().copied());
    for _ in 0..4 {
        let cpu = sched_getcpu().expect("getcpu");
        assert!(cpus.contains(&cpu), "allowed on {cpus:?}, ran on {cpu}");
        std::thread::yield_now();
    }
}

/// Forks and executes a program that ends at once.
pub fn fork_and_exec(_: &mut Random) {
    let status = Command::new("/bin/true").status().expect("start /bin/true");
    assert!(status.success());
}

/// One run of hackbench: 40 senders and 40 receivers over sockets.
pub fn hackbench(_: &mut Random) {
    let status = Command::new("hackbench")
        .args(["-g", "1", "-l", "100"])
        .stdout(Stdio::null())
        .status()
        .expect("start hackbench (scripts/setup installs rt-tests)");
    assert!(status.success());
}

/// Threads that want a moment of CPU again and again, and note how long they went without.
pub struct Canaries {
    stop: Arc<AtomicBool>,
    longest_ms: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Canaries {
    /// One canary for each entry: it begins on the entry's first CPU and may run on all of them.
    pub fn on(homes: &[Vec<usize>]) -> Canaries {
        let stop = Arc::new(AtomicBool::new(false));
        let longest_ms: Vec<Arc<AtomicU64>> = homes.iter().map(|_| Arc::default()).collect();
        let threads = homes
            .iter()
            .zip(&longest_ms)
            .map(|(home, longest)| {
                let (stop, home, longest) = (stop.clone(), home.clone(), longest.clone());
                std::thread::spawn(move || chirp(&home, &stop, &longest))
            })
            .collect();
        Canaries { stop, longest_ms, threads }
    }

    /// Ends the canaries; returns the longest silence of each, in ms.
    pub fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a canary ends"));
        self.longest_ms.iter().map(|ms| ms.load(Ordering::Relaxed)).collect()
    }
}

fn chirp(home: &[usize], stop: &AtomicBool, longest: &AtomicU64) {
    pin_to(home[..1].iter().copied());
    pin_to(home.iter().copied());
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        longest.fetch_max(last.elapsed().as_millis() as u64, Ordering::Relaxed);
        last = Instant::now();
    }
}
