//! What one process of the ring does. Runs in forked children: nothing here allocates or locks.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::sched_getcpu;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{read, write};

use super::plan::Goal;

/// A process notes its CPU once in so many passes (chosen: under 1% of the cheapest pass).
const SAMPLE_EVERY: u64 = 64;
/// The kernel's largest CONFIG_NR_CPUS.
const MAX_CPUS: usize = 8192;
/// Passes before the first repetition, so that every process has run and has its pages.
const WARM_UP: u64 = 16;

/// The pipe that a process reads the token from and the one that it passes it on to.
pub(super) struct Link {
    pub input: OwnedFd,
    pub output: OwnedFd,
}

impl Link {
    pub fn send(&self, token: u32) -> nix::Result<()> {
        retry(|| write(&self.output, &token.to_ne_bytes())).map(|_| ())
    }

    /// The token; none when the process before has closed its end. A pipe never tears four bytes.
    pub fn receive(&self) -> nix::Result<Option<u32>> {
        let mut token = [0; 4];
        let len = retry(|| read(&self.input, &mut token))?;
        Ok((len == token.len()).then(|| u32::from_ne_bytes(token)))
    }
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => continue,
            result => return result,
        }
    }
}

/// Memory that a process reads through before it passes the token on.
pub(super) struct WorkingSet(Vec<u32>);

impl WorkingSet {
    pub fn new(kb: usize) -> Self {
        WorkingSet(vec![1; kb * 1024 / size_of::<u32>()])
    }

    /// Gives this process pages of its own: until it writes, it shares its parent's.
    pub fn make_private(&mut self) {
        self.0.fill(2);
    }

    pub fn sum(&self) {
        black_box(self.0.iter().fold(0u32, |sum, word| sum.wrapping_add(*word)));
    }
}

/// One measured stretch of the ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub passes: u64,
    pub elapsed: Duration,
}

/// What a process saw: where it ran and, in the first one, how long it took.
pub(super) struct Log {
    passes: u64,
    /// Samples by CPU number.
    samples: Vec<u64>,
    stretches: Vec<Stretch>,
    /// Voluntary switches before the token started.
    switches_before: u64,
    first_cpu: usize,
}

impl Log {
    /// Takes all the memory that the run will need.
    pub fn new(repetitions: usize) -> Self {
        Log {
            passes: 0,
            samples: vec![0; MAX_CPUS],
            stretches: Vec::with_capacity(repetitions),
            switches_before: 0,
            first_cpu: MAX_CPUS,
        }
    }

    /// Notes the CPU that the process begins on: called before it is let go.
    pub fn begin(&mut self) {
        self.switches_before = voluntary_switches();
        self.first_cpu = current_cpu();
    }

    fn count_pass(&mut self) {
        if self.passes.is_multiple_of(SAMPLE_EVERY) {
            self.samples.get_mut(current_cpu()).into_iter().for_each(|count| *count += 1);
        }
        self.passes += 1;
    }

    /// Writes the log as 64-bit words: passes, switches, first and last CPU; then the samples as pairs of CPU
    /// and count, and the stretches as pairs of passes and nanoseconds, each list after its length.
    pub fn send(&self, mut to: &File) -> std::io::Result<()> {
        let mut put = |words: &[u64]| words.iter().try_for_each(|w| to.write_all(&w.to_ne_bytes()));
        let switches = voluntary_switches().saturating_sub(self.switches_before);
        put(&[self.passes, switches, self.first_cpu as u64, current_cpu() as u64])?;
        let seen = || self.samples.iter().enumerate().filter(|(_, count)| **count > 0);
        put(&[seen().count() as u64])?;
        seen().try_for_each(|(cpu, &count)| put(&[cpu as u64, count]))?;
        put(&[self.stretches.len() as u64])?;
        let mut stretches = self.stretches.iter();
        stretches.try_for_each(|s| put(&[s.passes, s.elapsed.as_nanos() as u64]))
    }
}

/// MAX_CPUS, which no CPU has, where the kernel does not say.
fn current_cpu() -> usize {
    sched_getcpu().unwrap_or(MAX_CPUS)
}

fn voluntary_switches() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.voluntary_context_switches() as u64)
}

/// A process of the ring with all that it needs.
pub(super) struct Member<'a> {
    pub link: &'a Link,
    pub set: &'a WorkingSet,
    pub log: &'a mut Log,
    pub procs: usize,
}

impl Member<'_> {
    /// Passes the token on until the ring is closed. Every process adds one to it.
    pub fn follow(&mut self) -> nix::Result<()> {
        while let Some(token) = self.link.receive()? {
            self.pass_on(token)?;
        }
        Ok(())
    }

    /// Starts the token and times it. The ring closes when this process closes its end.
    pub fn lead(&mut self, repetitions: usize, goal: Goal) -> nix::Result<()> {
        let mut token = 0;
        for _ in 0..WARM_UP {
            token = self.lead_pass(token)?;
        }
        for _ in 0..repetitions {
            let stretch = self.stretch(&mut token, goal)?;
            self.log.stretches.push(stretch);
        }
        Ok(())
    }

    fn stretch(&mut self, token: &mut u32, goal: Goal) -> nix::Result<Stretch> {
        let chunk = self.passes_between_clock_reads(goal);
        let start = Instant::now();
        let mut passes = 0;
        loop {
            for _ in 0..chunk {
                *token = self.lead_pass(*token)?;
            }
            passes += chunk;
            let elapsed = start.elapsed();
            if !matches!(goal, Goal::Time(length) if elapsed < length) {
                return Ok(Stretch { passes, elapsed });
            }
        }
    }

    /// A clock may cost a microsecond in a virtual machine: read once in 128 switches (chosen).
    fn passes_between_clock_reads(&self, goal: Goal) -> u64 {
        match goal {
            Goal::Passes(passes) => passes,
            Goal::Time(_) => (128 / self.procs as u64).max(1),
        }
    }

    /// The token once round; it comes back with one added by each process or the ring is broken.
    fn lead_pass(&mut self, token: u32) -> nix::Result<u32> {
        self.pass_on(token)?;
        match self.link.receive()? {
            Some(back) if back == token.wrapping_add(self.procs as u32) => Ok(back),
            Some(_) => Err(Errno::EBADMSG),
            None => Err(Errno::EPIPE),
        }
    }

    fn pass_on(&mut self, token: u32) -> nix::Result<()> {
        self.log.count_pass();
        self.set.sum();
        self.link.send(token.wrapping_add(1))
    }
}
