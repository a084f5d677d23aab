//! From the processes' logs to the figures, as text in lmbench's format and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::time::Duration;

use serde::Serialize;

use super::member::Stretch;
use super::plan::{CtxArgs, Plan};

/// What a process reported, decoded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProcessLog {
    pub pid: i32,
    pub passes: u64,
    pub voluntary_switches: u64,
    /// Before the process was let go.
    pub first_cpu: usize,
    pub last_cpu: usize,
    /// CPU and samples.
    pub samples: Vec<(usize, u64)>,
    pub stretches: Vec<Stretch>,
}

impl ProcessLog {
    /// Reads what `Log::send` wrote; none where it is cut off.
    pub fn decode(bytes: &[u8]) -> Option<ProcessLog> {
        let chunks = bytes.chunks_exact(size_of::<u64>());
        let mut words = chunks.filter_map(|chunk| Some(u64::from_ne_bytes(chunk.try_into().ok()?)));
        Some(ProcessLog {
            pid: 0,
            passes: words.next()?,
            voluntary_switches: words.next()?,
            first_cpu: words.next()? as usize,
            last_cpu: words.next()? as usize,
            samples: decode_pairs(&mut words, |cpu, count| (cpu as usize, count))?,
            stretches: decode_pairs(&mut words, |passes, ns| Stretch {
                passes,
                elapsed: Duration::from_nanos(ns),
            })?,
        })
    }
}

fn decode_pairs<T>(
    words: &mut impl Iterator<Item = u64>,
    make: impl Fn(u64, u64) -> T,
) -> Option<Vec<T>> {
    let len = words.next()?;
    (0..len).map(|_| Some(make(words.next()?, words.next()?))).collect()
}

/// The figures of one ring. Times are microseconds for one switch, the own overhead subtracted.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    procs: usize,
    size_kb: usize,
    overhead_us: f64,
    median_us: f64,
    min_us: f64,
    max_us: f64,
    /// Of all repetitions.
    passes: u64,
    repetitions: Vec<Repetition>,
    placement: Vec<Placement>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Repetition {
    us: f64,
    passes: u64,
    seconds: f64,
    /// Came out below the own overhead and was set to 0.
    clamped: bool,
}

/// Where one process was. Samples are taken once in 64 passes, the warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Placement {
    process: usize,
    pid: i32,
    /// Asked for with --start or --pin.
    start_cpu: Option<usize>,
    /// Where it was before it was let go.
    first_cpu: usize,
    last_cpu: usize,
    /// None where sysfs does not say.
    last_node: Option<usize>,
    voluntary_switches: u64,
    cpu_samples: BTreeMap<usize, u64>,
    node_samples: BTreeMap<usize, u64>,
}

impl Report {
    /// `logs` are those of the processes in their order; the first one timed the ring.
    pub fn new(plan: &Plan, overhead_us: f64, logs: Vec<ProcessLog>) -> Report {
        let stretches = logs.iter().flat_map(|log| &log.stretches);
        let repetitions: Vec<Repetition> =
            stretches.map(|stretch| Repetition::new(stretch, plan.procs, overhead_us)).collect();
        let times: Vec<f64> = repetitions.iter().map(|repetition| repetition.us).collect();
        let placement = logs.iter().enumerate();
        Report {
            procs: plan.procs,
            size_kb: plan.size_kb,
            overhead_us,
            median_us: median(&times),
            min_us: times.iter().copied().reduce(f64::min).unwrap_or(0.0),
            max_us: times.iter().copied().reduce(f64::max).unwrap_or(0.0),
            passes: repetitions.iter().map(|repetition| repetition.passes).sum(),
            repetitions,
            placement: placement.map(|(i, log)| Placement::new(plan, i, log)).collect(),
        }
    }

    /// What a reader of the figures must know.
    pub fn notes(&self) -> Option<String> {
        let clamped = self.repetitions.iter().filter(|repetition| repetition.clamped).count();
        (clamped > 0).then(|| {
            format!(
                "{clamped} of {} repetitions of {} processes took less than the own overhead of \
                 {:.2} us and count as 0: the machine is too noisy; make them longer (--seconds)",
                self.repetitions.len(),
                self.procs,
                self.overhead_us
            )
        })
    }

    /// The ring's lines for stdout.
    pub fn text(&self, args: &CtxArgs) -> serde_json::Result<String> {
        if args.json {
            return Ok(serde_json::to_string(self)? + "\n");
        }
        let mut text = format!("{} {:.2}\n", self.procs, self.median_us);
        for placement in self.placement.iter().filter(|_| args.placement) {
            let _ = writeln!(text, "{}", placement.text());
        }
        Ok(text)
    }
}

/// lmbench's own header; the quote that nothing closes belongs to it.
pub(super) fn header(size_kb: usize, overhead_us: f64) -> String {
    format!("\"size={size_kb}k ovr={overhead_us:.2}")
}

impl Repetition {
    fn new(stretch: &Stretch, procs: usize, overhead_us: f64) -> Repetition {
        let switches = (stretch.passes * procs as u64) as f64;
        let us = stretch.elapsed.as_secs_f64() * 1e6 / switches - overhead_us;
        Repetition {
            us: us.max(0.0),
            passes: stretch.passes,
            seconds: stretch.elapsed.as_secs_f64(),
            clamped: us <= 0.0,
        }
    }
}

impl Placement {
    fn new(plan: &Plan, process: usize, log: &ProcessLog) -> Placement {
        Placement {
            process,
            pid: log.pid,
            start_cpu: plan.start_cpu(process),
            first_cpu: log.first_cpu,
            last_cpu: log.last_cpu,
            last_node: node_of(log.last_cpu),
            voluntary_switches: log.voluntary_switches,
            cpu_samples: log.samples.iter().copied().collect(),
            node_samples: by_node(&log.samples, node_of),
        }
    }

    /// `process 0: CPU 3 x120, CPU 7 x2; last CPU 3`
    fn text(&self) -> String {
        let cpus = self.cpu_samples.iter().map(|(cpu, count)| format!("CPU {cpu} x{count}"));
        let cpus = cpus.collect::<Vec<_>>().join(", ");
        format!("process {}: {cpus}; last CPU {}", self.process, self.last_cpu)
    }
}

fn by_node(
    samples: &[(usize, u64)],
    node_of: impl Fn(usize) -> Option<usize>,
) -> BTreeMap<usize, u64> {
    let mut nodes = BTreeMap::new();
    for &(cpu, count) in samples {
        node_of(cpu).into_iter().for_each(|node| *nodes.entry(node).or_default() += count);
    }
    nodes
}

/// A CPU's directory in sysfs has a link that names its node.
fn node_of(cpu: usize) -> Option<usize> {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.find_map(|name| name.to_str()?.strip_prefix("node")?.parse().ok())
}

/// The middle value, or the mean of the two; 0 of nothing.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().wrapping_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Goal;
    use super::*;

    const ARGS: CtxArgs = CtxArgs {
        procs: Vec::new(),
        size: 0,
        repetitions: 3,
        seconds: 1.0,
        passes: None,
        start: Vec::new(),
        pin: Vec::new(),
        placement: false,
        json: false,
    };

    fn stretch(passes: u64, micros: u64) -> Stretch {
        Stretch { passes, elapsed: Duration::from_micros(micros) }
    }

    /// Two processes, 100 passes in each repetition: 200 switches, so 2 us overhead is 400 us.
    fn report() -> Report {
        let start = vec![0, 4];
        let goal = Goal::Passes(100);
        let plan = Plan { procs: 2, size_kb: 0, repetitions: 3, goal, start, pinned: false };
        let log = ProcessLog {
            pid: 7,
            passes: 316,
            voluntary_switches: 300,
            first_cpu: 0,
            last_cpu: 4,
            samples: vec![(0, 1), (4, 3)],
            stretches: vec![stretch(100, 1000), stretch(100, 622), stretch(100, 300)],
        };
        let follower = ProcessLog { stretches: Vec::new(), ..log.clone() };
        Report::new(&plan, 2.0, vec![log, follower])
    }

    #[test]
    fn the_text_is_lmbenchs() {
        assert_eq!(header(0, 1.194), "\"size=0k ovr=1.19");
        assert_eq!(report().text(&ARGS).unwrap(), "2 1.11\n");
    }

    #[test]
    fn placement_is_printed_on_request() {
        let text = report().text(&CtxArgs { placement: true, ..ARGS }).unwrap();
        assert!(text.contains("\nprocess 1: CPU 0 x1, CPU 4 x3; last CPU 4\n"), "{text}");
    }

    #[test]
    fn json_has_all_repetitions_and_the_placement() {
        let line = report().text(&CtxArgs { json: true, ..ARGS }).unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&json["procs"], &json["passes"]), (&2.into(), &300.into()));
        assert_eq!(json["repetitions"].as_array().unwrap().len(), 3);
        assert_eq!((&json["max_us"], &json["min_us"]), (&3.0.into(), &0.0.into()));
        let second = &json["placement"][1];
        assert_eq!((&second["start_cpu"], &second["last_cpu"]), (&4.into(), &4.into()));
        assert_eq!((&second["cpu_samples"]["4"], &second["pid"]), (&3.into(), &7.into()));
    }

    #[test]
    fn a_time_below_the_overhead_is_clamped_and_said() {
        let report = report();
        let clamped: Vec<bool> = report.repetitions.iter().map(|r| r.clamped).collect();
        assert_eq!(clamped, [false, false, true]);
        let note = report.notes().unwrap();
        assert!(note.starts_with("1 of 3 repetitions of 2 processes took less"), "{note}");
    }

    #[test]
    fn a_median_is_the_middle() {
        for (values, middle) in
            [(vec![], 0.0), (vec![3.0], 3.0), (vec![4.0, 1.0], 2.5), (vec![9.0, 1.0, 2.0], 2.0)]
        {
            assert_eq!(median(&values), middle, "{values:?}");
        }
    }

    #[test]
    fn samples_are_added_up_by_node() {
        let nodes = by_node(&[(0, 1), (3, 2), (4, 5), (9, 7)], |cpu| (cpu < 8).then_some(cpu / 4));
        assert_eq!(nodes, BTreeMap::from([(0, 3), (1, 5)]));
    }

    #[test]
    fn a_log_that_is_cut_off_is_none() {
        let words = [9, 8, 6, 7, 1, 4, 3, 1, 100, 5000u64];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let log = ProcessLog::decode(&bytes).unwrap();
        assert_eq!((log.passes, log.voluntary_switches), (9, 8));
        assert_eq!((log.first_cpu, log.last_cpu), (6, 7));
        assert_eq!((log.samples, log.stretches), (vec![(4, 3)], vec![stretch(100, 5)]));
        assert!((0..bytes.len()).all(|len| ProcessLog::decode(&bytes[..len]).is_none()));
    }
}
