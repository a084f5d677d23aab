//! `scx_retune run`: attach, answer requests, and end in one of three ways.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use nix::time::{ClockId, clock_gettime};
use scx_utils::UserExitInfo;

use super::attach::{Attached, Fault, Opened, Storage};
use super::libbpf;
use super::plan::{Plan, QueueCpus};
use super::probe;
use crate::cli::SocketArgs;
use crate::control::server::Server;
use crate::control::{Request, Response, SetReport};
use crate::error::Error;
use crate::flags::{self, Flag, Matrix, Preset, Word};
use crate::stats::Snapshot;
use crate::topology::Machine;
use crate::view::plan::describe;

/// How often the loop looks whether the kernel has ended the scheduler.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Flags to begin with, instead of mainline's: assignments or a preset
    #[arg(long, value_name = "ASSIGNMENTS")]
    pub set: Vec<String>,
    /// CPUs that share a run queue: a number, or llc for all of a last-level cache. One is the
    /// kernel's shape; wider queues need no balance inside, and share a lock
    #[arg(long, value_name = "N|llc", default_value = "1")]
    pub queue_cpus: QueueCpus,
    /// Print what would be loaded, and load nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Break a rule on purpose, for a test's negative control
    #[arg(long, hide = true, value_enum, default_value_t)]
    pub fault: Fault,
}

/// Why the scheduler stopped.
enum Outcome {
    /// A signal asked for it.
    Stopped,
    /// The machine's CPUs changed: attach anew to what is there now.
    Restart,
}

pub fn run(args: &RunArgs) -> Result<u8> {
    let mut machine = Machine::from_root(Path::new("/"))?;
    let mut matrix = first_matrix(&args.set, &machine)?;
    if args.dry_run {
        print!("{}", describe(&machine, &Plan::new(&machine, args.queue_cpus)?, &matrix));
        return Ok(0);
    }
    probe::check()?;
    let stop = stop_on_signal()?;
    let mut server = Server::bind(&args.socket.socket)?;
    for epoch in 1.. {
        let mut session = Session {
            machine: &machine,
            matrix: &mut matrix,
            epoch,
            fault: args.fault,
            queue_cpus: args.queue_cpus,
        };
        match session.run(&mut server, &stop)? {
            Outcome::Stopped => break,
            Outcome::Restart => machine = Machine::from_root(Path::new("/"))?,
        }
    }
    Ok(0)
}

fn first_matrix(assignments: &[String], machine: &Machine) -> Result<Matrix, Error> {
    let mut matrix = Matrix::mainline(machine);
    if !assignments.is_empty() {
        matrix.apply(&flags::parse(&assignments.join(","), machine)?);
    }
    Ok(matrix)
}

fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch ctrl-C and SIGTERM")?;
    Ok(stop)
}

/// One attachment: from load to the end, with the state that outlives it.
struct Session<'a> {
    machine: &'a Machine,
    matrix: &'a mut Matrix,
    epoch: u64,
    fault: Fault,
    queue_cpus: QueueCpus,
}

impl Session<'_> {
    fn run(&mut self, server: &mut Server, stop: &AtomicBool) -> Result<Outcome> {
        let plan = Plan::new(self.machine, self.queue_cpus)?;
        let mut storage = Storage::uninit();
        libbpf::keep_messages();
        let mut attached = self
            .attach(&plan, &mut storage)
            .inspect_err(|_| eprint!("{}", libbpf::take_messages()))?;
        libbpf::take_messages();
        eprintln!("scx_retune: attached, {}", summary(self.machine, &plan));
        while !stop.load(Ordering::Relaxed) && !attached.has_exited() {
            server.serve(LOOK_INTERVAL, |request| self.answer(request, &mut attached))?;
        }
        self.outcome(&attached.detach(), stop)
    }

    fn attach<'s>(&self, plan: &Plan, storage: &'s mut Storage) -> Result<Attached<'s>> {
        Opened::open(storage)?
            .configure(plan, self.fault, &words_of(self.matrix), self.matrix.generation())?
            .load()?
            .attach()
    }

    fn answer(&mut self, request: Request, attached: &mut Attached) -> Response {
        match request {
            Request::Get => self.flags(),
            Request::Set { assignments } => self
                .set(&assignments, attached)
                .map_or_else(|refusal| Response::from(&refusal), Response::Set),
            Request::Stats => Response::Stats(Box::new(self.snapshot(attached))),
        }
    }

    fn flags(&self) -> Response {
        let view = self.matrix.view(self.machine);
        Response::Flags {
            table: view.to_string(),
            plain: view.plain(),
            view: serde_json::to_value(&view).unwrap_or_default(),
        }
    }

    fn set(&mut self, text: &str, attached: &mut Attached) -> Result<SetReport, Error> {
        let assignments = flags::parse(text, self.machine)?;
        let change = self.matrix.apply(&assignments);
        attached.publish(&words_of(self.matrix), change.generation);
        Ok(SetReport {
            generation: change.generation,
            words_changed: change.words_changed,
            cpus: change.cpus.to_string(),
            at_unix_ns: clock_ns(ClockId::CLOCK_REALTIME),
            left_out: left_out(text),
        })
    }

    fn snapshot(&self, attached: &mut Attached) -> Snapshot {
        Snapshot {
            epoch: self.epoch,
            generation: self.matrix.generation(),
            at_ns: clock_ns(ClockId::CLOCK_MONOTONIC),
            waiting_now: attached.waiting_now(),
            rows: Snapshot::rows_from_words(&attached.counters()),
        }
    }

    fn outcome(&self, exit: &UserExitInfo, stop: &AtomicBool) -> Result<Outcome> {
        if exit.should_restart() && !stop.load(Ordering::Relaxed) {
            eprintln!("scx_retune: the machine's CPUs changed, attaching anew");
            return Ok(Outcome::Restart);
        }
        exit.report()
            .map_err(|why| Error::ejected(format!("the kernel ejected the scheduler: {why}")))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Stopped);
        }
        Err(Error::ejected("the scheduler was unloaded from outside (SysRq-S or the kernel)")
            .into())
    }
}

fn words_of(matrix: &Matrix) -> Vec<u64> {
    matrix.words().iter().map(|&Word(bits)| bits).collect()
}

/// The flags of a preset that this build does not deliver, with their reasons.
fn left_out(text: &str) -> Vec<String> {
    let preset = Preset::from_name(text.trim());
    let flags: Vec<(Flag, &str)> = preset.map(Preset::left_out).unwrap_or_default();
    flags.iter().map(|(flag, reason)| format!("{flag}: {reason}")).collect()
}

fn summary(machine: &Machine, plan: &Plan) -> String {
    let levels: Vec<String> = machine.levels().iter().map(ToString::to_string).collect();
    format!(
        "{} CPUs, {} nodes, {} last-level caches, levels {}",
        machine.cpus.len(),
        plan.nodes.len(),
        plan.llcs.len(),
        levels.join(" ")
    )
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock)
        .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        .unwrap_or_default()
}
