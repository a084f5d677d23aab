//! What was asked for, checked before the first process starts.

use std::time::Duration;

use nix::sched::sched_getaffinity;
use nix::unistd::Pid;

use crate::error::Error;
use crate::topology::CpuSet;

/// As many as lmbench's lat_ctx takes.
const MAX_PROCS: usize = 2048;
/// Chosen: 1 GiB for each process, far more than a cache.
const MAX_SIZE_KB: usize = 1 << 20;
/// Chosen: an hour for one repetition.
const MAX_SECONDS: f64 = 3600.0;

/// Measure a ring of pipes: what a switch costs, and where the processes end up
#[derive(clap::Args, Clone, Debug)]
pub struct CtxArgs {
    /// Processes in the ring; several numbers measure one ring after the other
    #[arg(default_value = "2", num_args = 1.., value_name = "PROCS")]
    pub procs: Vec<usize>,

    /// Working set that each process reads through before it passes the token on, in KB
    #[arg(short, long, value_name = "KB", default_value_t = 0)]
    pub size: usize,

    /// Times that each ring is measured; the median is printed
    #[arg(short = 'N', long, value_name = "N", default_value_t = 5)]
    pub repetitions: usize,

    /// Length of one repetition
    #[arg(long, value_name = "S", default_value_t = 0.5, conflicts_with = "passes")]
    pub seconds: f64,

    /// Length of one repetition as passes of the token round the ring
    #[arg(long, value_name = "N")]
    pub passes: Option<u64>,

    /// CPUs that the processes begin on, in turn; they are free to move before the token starts
    #[arg(long, value_name = "CPU,...", value_delimiter = ',', conflicts_with = "pin")]
    pub start: Vec<usize>,

    /// CPUs that the processes stay on, in turn
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// Also print where the processes ran (the JSON output always says it)
    #[arg(long)]
    pub placement: bool,

    /// One JSON object for each ring
    #[arg(long)]
    pub json: bool,
}

/// When a repetition ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    Passes(u64),
    Time(Duration),
}

/// One ring.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub procs: usize,
    pub size_kb: usize,
    pub repetitions: usize,
    pub goal: Goal,
    pub start: Vec<usize>,
    /// Whether the processes stay on their start CPUs.
    pub pinned: bool,
}

impl Plan {
    /// The CPU that a process begins on; the list is used again when it is shorter than the ring.
    pub fn start_cpu(&self, process: usize) -> Option<usize> {
        self.start.iter().cycle().nth(process).copied()
    }
}

/// A plan for each ring, or a usage error.
pub(super) fn from_args(args: &CtxArgs) -> anyhow::Result<Vec<Plan>> {
    let start = if args.pin.is_empty() { &args.start } else { &args.pin };
    if !start.is_empty() {
        check_cpus(start, &allowed_cpus()?)?;
    }
    check_numbers(args)?;
    let plan = |&procs: &usize| Plan {
        procs,
        size_kb: args.size,
        repetitions: args.repetitions,
        goal: goal(args),
        start: start.clone(),
        pinned: !args.pin.is_empty(),
    };
    Ok(args.procs.iter().map(plan).collect())
}

fn goal(args: &CtxArgs) -> Goal {
    match args.passes {
        Some(passes) => Goal::Passes(passes),
        None => Goal::Time(Duration::from_secs_f64(args.seconds)),
    }
}

fn check_numbers(args: &CtxArgs) -> Result<(), Error> {
    for procs in &args.procs {
        let ring = format!("a ring of {procs} processes");
        check((2..=MAX_PROCS).contains(procs), &ring, &format!("say 2 to {MAX_PROCS}"))?;
    }
    let size = format!("a working set of {} KB", args.size);
    check(args.size <= MAX_SIZE_KB, &size, &format!("say 0 to {MAX_SIZE_KB}"))?;
    check(args.repetitions > 0, "0 repetitions", "say 1 or more")?;
    check(args.passes != Some(0), "0 passes", "say 1 or more")?;
    let seconds = format!("a repetition of {} seconds", args.seconds);
    let is_length = args.seconds > 0.0 && args.seconds <= MAX_SECONDS;
    check(is_length, &seconds, &format!("say more than 0, at most {MAX_SECONDS}"))
}

fn check(is_right: bool, what: &str, say: &str) -> Result<(), Error> {
    match is_right {
        true => Ok(()),
        false => Err(Error::usage(format!("cannot measure {what}: {say}"))),
    }
}

fn check_cpus(cpus: &[usize], allowed: &CpuSet) -> Result<(), Error> {
    match cpus.iter().find(|&&cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => Err(Error::usage(format!(
            "cannot start a process on CPU {cpu}: CPUs that it may use are {allowed}"
        ))),
    }
}

/// The CPUs that this process, and so the ring, may use. The kernel refuses this interface where it
/// has more than 1024 CPUs.
fn allowed_cpus() -> Result<CpuSet, Error> {
    let set = sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| Error::environment(format!("cannot read the CPU affinity: {errno}")))?;
    let is_set = |&cpu: &usize| set.is_set(cpu).unwrap_or(false);
    Ok((0..nix::sched::CpuSet::count()).filter(is_set).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Kind, exit_code_of};
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CtxArgs,
    }

    fn args(line: &str) -> CtxArgs {
        Cli::try_parse_from(std::iter::once("ctx").chain(line.split_whitespace())).unwrap().args
    }

    #[test]
    fn a_pair_without_working_set_is_the_default() {
        let plans = from_args(&args("")).unwrap();
        assert_eq!(plans.len(), 1);
        assert_eq!((plans[0].procs, plans[0].size_kb, plans[0].repetitions), (2, 0, 5));
        assert_eq!(plans[0].goal, Goal::Time(Duration::from_millis(500)));
        assert_eq!(plans[0].start_cpu(1), None);
    }

    #[test]
    fn each_number_of_processes_is_a_ring() {
        let plans = from_args(&args("-s 16 -N 3 --passes 100 2 8")).unwrap();
        assert_eq!(plans.iter().map(|plan| plan.procs).collect::<Vec<_>>(), [2, 8]);
        assert_eq!((plans[1].size_kb, plans[1].goal), (16, Goal::Passes(100)));
    }

    #[test]
    fn a_wrong_number_says_what_to_say() {
        for (line, message) in [
            ("1", "cannot measure a ring of 1 processes: say 2 to 2048"),
            ("2 5000", "cannot measure a ring of 5000 processes: say 2 to 2048"),
            ("-s 9999999", "cannot measure a working set of 9999999 KB: say 0 to 1048576"),
            ("-N 0", "cannot measure 0 repetitions: say 1 or more"),
            ("--passes 0", "cannot measure 0 passes: say 1 or more"),
            ("--seconds 0", "a repetition of 0 seconds: say more than 0, at most 3600"),
            ("--seconds nan", "a repetition of NaN seconds"),
        ] {
            let error = from_args(&args(line)).unwrap_err();
            assert!(error.to_string().contains(message), "{line}: {error}");
            assert_eq!(exit_code_of(&error), Kind::Usage as u8);
        }
    }

    #[test]
    fn a_start_cpu_that_is_not_there_is_a_usage_error() {
        let error = from_args(&args("--start 0,1000000")).unwrap_err();
        assert_eq!(exit_code_of(&error), Kind::Usage as u8);
        let message = check_cpus(&[0, 99], &(0..16).collect()).unwrap_err().message;
        assert_eq!(message, "cannot start a process on CPU 99: CPUs that it may use are 0-15");
    }

    #[test]
    fn start_cpus_are_used_in_turn() {
        let plan = Plan { start: vec![3, 5], ..from_args(&args("4")).unwrap().remove(0) };
        assert_eq!((0..4).filter_map(|i| plan.start_cpu(i)).collect::<Vec<_>>(), [3, 5, 3, 5]);
    }
}
