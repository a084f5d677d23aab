//! `scx_retune run`: its options, and the session that they begin.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::Args;

use super::attach::Fault;
use super::config::{self, Config};
use super::loader::BpfLoader;
use super::plan::{Plan, QueueCpus};
use super::probe;
use super::session::Session;
use super::state::{State, left_out};
use crate::control::DEFAULT_SOCKET;
use crate::control::server::Server;
use crate::error::Error;
use crate::flags::{self, Matrix};
use crate::topology::Machine;
use crate::view::plan::describe;

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Flags to begin with, instead of mainline's: assignments or a preset; several are applied
    /// in their order
    #[arg(long, value_name = "ASSIGNMENTS")]
    pub set: Vec<String>,
    /// CPUs that share a run queue: a number, or llc for all of a last-level cache. One, the
    /// default, is the kernel's shape; wider queues need no balance inside, and share a lock
    #[arg(long, value_name = "N|llc")]
    pub queue_cpus: Option<QueueCpus>,
    /// TOML file with the keys preset, set, queue-cpus and socket; the command line wins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print what would be loaded, and load nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where to listen [default: /run/scx_retune.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Break a rule on purpose, for a test's negative control
    #[arg(long, hide = true, value_enum, default_value_t)]
    pub fault: Fault,
}

/// The options that are in force.
struct Options {
    set: Vec<String>,
    queue_cpus: QueueCpus,
    socket: PathBuf,
}

impl Options {
    fn new(args: &RunArgs, file: Config) -> Options {
        let own_set = (!args.set.is_empty()).then(|| args.set.clone());
        let socket = args.socket.clone().or(file.socket);
        Options {
            set: own_set.or(file.set).unwrap_or_default(),
            queue_cpus: args.queue_cpus.or(file.queue_cpus).unwrap_or_default(),
            socket: socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
        }
    }
}

pub fn run(args: &RunArgs) -> Result<u8> {
    let file = args.config.as_deref().map(config::read).transpose()?;
    let options = Options::new(args, file.unwrap_or_default());
    let machine = Machine::from_root(Path::new("/"))?;
    let matrix = first_matrix(&options.set, &machine)?;
    if args.dry_run {
        print!("{}", describe(&machine, &Plan::new(&machine, options.queue_cpus)?, &matrix));
        return Ok(0);
    }
    probe::check()?;
    let stop = stop_on_signal()?;
    let mut session = Session {
        loader: BpfLoader { fault: args.fault, queue_cpus: options.queue_cpus },
        clients: Server::bind(&options.socket)?,
        state: State::new(machine, matrix, &options.set.join(",")),
        stop: &stop,
    };
    session.run()?;
    Ok(0)
}

fn first_matrix(set: &[String], machine: &Machine) -> Result<Matrix, Error> {
    let mut matrix = Matrix::mainline(machine);
    for text in set {
        matrix.apply(&flags::parse(text, machine)?);
    }
    for flag in set.iter().flat_map(|text| left_out(text)) {
        eprintln!("left out: {flag}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArgs,
    }

    fn options(args: &[&str], file: Config) -> Options {
        let line = [&["run"], args].concat();
        Options::new(&Command::parse_from(line).run, file)
    }

    fn file() -> Config {
        Config {
            set: Some(vec!["none".to_owned()]),
            queue_cpus: Some(QueueCpus::Llc),
            socket: Some("/run/file.sock".into()),
        }
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_the_file_over_defaults() {
        let args = ["--set", "all", "--queue-cpus", "2", "--socket", "/run/line.sock"];
        let line = options(&args, file());
        assert_eq!((line.set, line.queue_cpus), (vec!["all".to_owned()], QueueCpus::UpTo(2)));
        assert_eq!(line.socket, Path::new("/run/line.sock"));
        let file = options(&[], file());
        assert_eq!((file.set, file.queue_cpus), (vec!["none".to_owned()], QueueCpus::Llc));
        assert_eq!(file.socket, Path::new("/run/file.sock"));
        let default = options(&[], Config::default());
        assert_eq!((default.set, default.queue_cpus), (vec![], QueueCpus::default()));
        assert_eq!(default.socket, Path::new(DEFAULT_SOCKET));
    }
}
